package traffic

import (
	"fmt"
	"regexp"
	"strings"
)

// Limits of Envoy's uri_template matcher (uri_template_internal.cc): at most 5 variables of at most
// 16 characters, and templates of at most 256 bytes.
const (
	maxVariables      = 5
	maxVariableLength = 16
	maxTemplateLength = 256
)

var (
	literalText  = regexp.MustCompile(`^[A-Za-z0-9\-._~%!$&'()+,;:@=]*$`)
	variableName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
	segmentParts = regexp.MustCompile(`^([^{}]*)\{([^{}]+)\}([^{}]*)$`)
)

// segment is one part of a path template between slashes: prefix{variable}suffix.
type segment struct {
	prefix, variable, suffix string
}

// Template is a parsed path template: RFC 6570 level 1 with at most one variable per segment.
type Template struct {
	text     string
	segments []segment
}

// ParseTemplate reads a path template. It refuses what Envoy's matcher cannot express, because one
// such route would make Envoy refuse its whole route table.
func ParseTemplate(text string) (Template, error) {
	if !strings.HasPrefix(text, "/") {
		return Template{}, fmt.Errorf("path template %q: must begin with '/'", text)
	}
	if len(text) > maxTemplateLength {
		return Template{}, fmt.Errorf("path template %.40q...: %d bytes; must be at most %d", text, len(text), maxTemplateLength)
	}
	parts := strings.Split(text[1:], "/")
	template := Template{text: text, segments: make([]segment, 0, len(parts))}
	for i, part := range parts {
		parsed, err := parseSegment(part)
		if err != nil {
			return Template{}, fmt.Errorf("path template %q: %w", text, err)
		}
		if part == "" && i != len(parts)-1 {
			return Template{}, fmt.Errorf("path template %q: must not have an empty segment", text)
		}
		template.segments = append(template.segments, parsed)
	}
	return template, nil
}

func parseSegment(part string) (segment, error) {
	parsed := segment{prefix: part}
	if strings.ContainsAny(part, "{}") {
		m := segmentParts.FindStringSubmatch(part)
		if m == nil {
			return segment{}, fmt.Errorf("segment %q: must have at most one {variable}", part)
		}
		parsed = segment{prefix: m[1], variable: m[2], suffix: m[3]}
	}
	if !literalText.MatchString(parsed.prefix) || !literalText.MatchString(parsed.suffix) {
		return segment{}, fmt.Errorf("segment %q: must not have characters outside A-Z a-z 0-9 -._~%%!$&'()+,;:@=", part)
	}
	return parsed, nil
}

// Pattern returns the template in the form that Envoy's matcher accepts. When Envoy would refuse
// the variables (too many, an invalid or too long name, a name used twice), they are renamed. The
// pattern matches the same paths.
func (t Template) Pattern() (string, error) {
	if t.variablesFit() {
		return t.text, nil
	}
	var out strings.Builder
	names := 0
	for _, s := range t.segments {
		out.WriteString("/" + s.prefix)
		switch {
		case s.variable == "":
		case s.prefix == "" && s.suffix == "":
			out.WriteString("*")
		default: // Envoy accepts '*' only as a whole segment
			if names++; names > maxVariables {
				return "", fmt.Errorf("path template %q: must have at most %d variables inside segments", t.text, maxVariables)
			}
			fmt.Fprintf(&out, "{v%d}%s", names, s.suffix)
		}
	}
	if out.Len() > maxTemplateLength {
		return "", fmt.Errorf("path template %.40q...: must have at most %d bytes after its variables are renamed", t.text, maxTemplateLength)
	}
	return out.String(), nil
}

// variablesFit reports whether Envoy accepts the variables as they are.
func (t Template) variablesFit() bool {
	seen := map[string]bool{}
	for _, s := range t.segments {
		if s.variable == "" {
			continue
		}
		if seen[s.variable] || len(s.variable) > maxVariableLength || !variableName.MatchString(s.variable) {
			return false
		}
		seen[s.variable] = true
	}
	return len(seen) <= maxVariables
}

// Matches reports whether a path (without query) is an instance of the template.
func (t Template) Matches(path string) bool {
	if !strings.HasPrefix(path, "/") {
		return false
	}
	parts := strings.Split(path[1:], "/")
	if len(parts) != len(t.segments) {
		return false
	}
	for i, s := range t.segments {
		if !s.matches(parts[i]) {
			return false
		}
	}
	return true
}

func (s segment) matches(part string) bool {
	if s.variable == "" {
		return part == s.prefix
	}
	return len(part) > len(s.prefix)+len(s.suffix) &&
		strings.HasPrefix(part, s.prefix) && strings.HasSuffix(part, s.suffix)
}
