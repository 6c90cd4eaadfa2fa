package traffic

import (
	"cmp"
	"slices"
	"strings"
)

// rank returns a smaller number the fewer paths the segment matches.
func (s segment) rank() int {
	switch {
	case s.variable == "":
		return 0
	case s.prefix != "" || s.suffix != "":
		return 1
	default:
		return 2
	}
}

// literalLength returns the length of the text around the variable.
func (s segment) literalLength() int { return len(s.prefix) + len(s.suffix) }

// compareTemplates is a total order. Of two templates that match the same path, the more specific
// comes first. At the first segment that differs in form, a literal comes before a variable, and a
// variable with more text around it comes before one with less.
func compareTemplates(a, b Template) int {
	for i := range min(len(a.segments), len(b.segments)) {
		if c := compareForms(a.segments[i], b.segments[i]); c != 0 {
			return c
		}
	}
	// Templates of different lengths match no path in common. The text breaks the other ties.
	return cmp.Or(cmp.Compare(len(a.segments), len(b.segments)), strings.Compare(a.text, b.text))
}

func compareForms(a, b segment) int {
	if c := cmp.Compare(a.rank(), b.rank()); c != 0 || a.variable == "" {
		return c
	}
	return cmp.Compare(b.literalLength(), a.literalLength())
}

// compareClasses orders classes by service, then by template (the most specific first), then by
// method.
func compareClasses(a, b Class) int {
	return cmp.Or(
		strings.Compare(a.Service, b.Service),
		compareTemplates(a.Template, b.Template),
		strings.Compare(a.Method, b.Method),
	)
}

// SortClasses sorts the classes in place, the most specific first. The result does not depend on
// the initial order.
func SortClasses(classes []Class) {
	slices.SortFunc(classes, compareClasses)
}
