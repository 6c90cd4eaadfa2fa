package traffic

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spillway.dev/contracts/spillwayv1"
)

func template(t *testing.T, text string) Template {
	t.Helper()
	parsed, err := ParseTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// randomTemplate returns a template of few different literals, so that templates often overlap.
func randomTemplate(r *rand.Rand) string {
	parts := []string{"a", "b", "{x}", "{y}", "a{z}", "ab{z}", "{z}b", "a{z}b"}
	var text strings.Builder
	for range 1 + r.IntN(3) {
		text.WriteString("/" + parts[r.IntN(len(parts))])
	}
	return text.String()
}

func randomPath(r *rand.Rand) string {
	parts := []string{"a", "b", "c", "ab", "abc", "acb", "bb"}
	var text strings.Builder
	for range 1 + r.IntN(3) {
		text.WriteString("/" + parts[r.IntN(len(parts))])
	}
	return text.String()
}

// TestMostSpecificFirst checks random templates and paths. The order is total and does not depend
// on the initial order. Of all templates that match a path, the first has a literal at the first
// difference from another one that has a variable there.
func TestMostSpecificFirst(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		templates := make([]Template, 0, 12)
		for range 12 {
			templates = append(templates, template(t, randomTemplate(r)))
		}
		slices.SortFunc(templates, compareTemplates)
		shuffled := slices.Clone(templates)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		slices.SortFunc(shuffled, compareTemplates)
		for i := range templates {
			if templates[i].text != shuffled[i].text {
				t.Fatalf("the order depends on the order given: %s, %s", templates[i].text, shuffled[i].text)
			}
		}
		path := randomPath(r)
		first := slices.IndexFunc(templates, func(x Template) bool { return x.Matches(path) })
		for i := max(first, 0) + 1; first >= 0 && i < len(templates); i++ {
			if templates[i].Matches(path) && lessSpecific(templates[first], templates[i]) {
				t.Fatalf("path %s: %s goes before %s", path, templates[first].text, templates[i].text)
			}
		}
	}
}

// lessSpecific is true when b is narrower at the first segment in which a and b differ in form.
func lessSpecific(a, b Template) bool {
	for i, s := range a.segments {
		fixed, other := fixedText(s), fixedText(b.segments[i])
		if fixed != other {
			return fixed < other
		}
	}
	return false
}

// fixedText returns how much of the segment a path must repeat. A literal counts as longer than any
// variable.
func fixedText(s segment) int {
	if s.variable == "" {
		return maxTemplateLength
	}
	return len(s.prefix) + len(s.suffix)
}

// TestOrderExamples checks one order of templates that is written out.
func TestOrderExamples(t *testing.T) {
	want := []string{"/", "/items", "/items/new", "/items/{id}", "/items/{id}/parts", "/v{version}", "/{any}", "/{any}/{thing}"}
	templates := make([]Template, 0, len(want))
	for _, text := range want {
		templates = append(templates, template(t, text))
	}
	slices.Reverse(templates)
	slices.SortFunc(templates, compareTemplates)
	for i := range want {
		if templates[i].text != want[i] {
			t.Errorf("place %d: %s, want %s", i, templates[i].text, want[i])
		}
	}
}

// FuzzTemplate checks that no text causes a panic. A template that is accepted has a pattern that
// is a valid template again, within Envoy's limits, in which only variables are renamed.
func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{"/", "/a/{id}", "/{a}/{a}", "/v{x}.json", "//", "/{", "/a/{1}/{b-c}/{d}/{e}/{f}/{g}", "/ü", "/*"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := ParseTemplate(text)
		if err != nil {
			return
		}
		pattern, err := parsed.Pattern()
		if err != nil {
			return
		}
		if !strings.Contains(pattern, "*") {
			again, err := ParseTemplate(pattern)
			if err != nil || !again.variablesFit() {
				t.Fatalf("%q became %q: %v", text, pattern, err)
			}
		}
		if len(pattern) > maxTemplateLength || strings.Count(pattern, "/") != strings.Count(text, "/") {
			t.Fatalf("%q became %q", text, pattern)
		}
		if compareTemplates(parsed, parsed) != 0 {
			t.Fatalf("%q is not equal to itself", text)
		}
	})
}

// TestParseClassErrors checks that classes that Envoy cannot match are refused with an error that
// says what is wrong.
func TestParseClassErrors(t *testing.T) {
	for want, class := range map[string]*spillwayv1.TrafficClass{
		`service "a|b"`:                  {Service: "a|b", Method: "GET", PathTemplate: "/"},
		`method "get"`:                   {Service: "a", Method: "get", PathTemplate: "/"},
		`must begin with '/'`:            {Service: "a", Method: "GET", PathTemplate: "x"},
		`empty segment`:                  {Service: "a", Method: "GET", PathTemplate: "/a//b"},
		`at most one {variable}`:         {Service: "a", Method: "GET", PathTemplate: "/{a}{b}"},
		`301 bytes; must be at most 256`: {Service: "a", Method: "GET", PathTemplate: "/" + strings.Repeat("x", 300)},
		`variables inside segmen`:        {Service: "a", Method: "GET", PathTemplate: "/v{a}/v{b}/v{c}/v{d}/v{e}/v{f}"},
	} {
		if _, err := ParseClass(class); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
