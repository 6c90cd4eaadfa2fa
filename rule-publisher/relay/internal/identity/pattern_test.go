package identity

import (
	"net/url"
	"strings"
	"testing"
	"testing/quick"
)

const pattern = Pattern("spiffe://mesh/cluster/{cluster}/service/{service}")

// TestParsePattern checks that only patterns with both placeholders, once each, that make a URI are
// accepted.
func TestParsePattern(t *testing.T) {
	for text, want := range map[string]string{
		string(pattern): "",
		"https://x.y/{service}?cluster={cluster}":    "",
		"spiffe://mesh/{service}":                    "{cluster} 0 times",
		"spiffe://mesh/{cluster}":                    "{service} 0 times",
		"spiffe://mesh/{cluster}{service}/{service}": "{service} 2 times",
		"/{cluster}/{service}":                       "not a URI",
		"spiffe:///{cluster}/{service}":              "not a URI",
		"spiffe://mesh/{cluster}/{service}/{pod}":    "braces",
		"": "0 times",
	} {
		if _, err := ParsePattern(text); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestCheck checks that a node is admitted only when the filled pattern is exactly one of the
// presented SANs. The error names both what was presented and what is needed.
func TestCheck(t *testing.T) {
	good := "spiffe://mesh/cluster/north/service/gate"
	if err := pattern.Check([]string{"spiffe://mesh/other", good}, "north", "gate"); err != nil {
		t.Error(err)
	}
	for _, presented := range [][]string{nil, {""}, {good + "/"}, {good + "x"}, {strings.ToUpper(good)}, {"spiffe://mesh/cluster/south/service/gate"},
		{"spiffe://mesh/cluster/north/service/{service}"}, {string(pattern)}, {"*"}} {
		err := pattern.Check(presented, "north", "gate")
		if err == nil || !strings.Contains(err.Error(), `needs "`+good+`"`) || len(presented) > 0 && !strings.Contains(err.Error(), presented[0]) {
			t.Errorf("%q: %v", presented, err)
		}
	}
}

// TestNoServicePassesForAnother checks that the certificate of one service never admits another,
// whatever the two are called: names with slashes and braces are included.
func TestNoServicePassesForAnother(t *testing.T) {
	property := func(a, b string) bool {
		uri, err := url.Parse(pattern.Fill("north", a))
		if err != nil {
			return true // no certificate can carry this URI
		}
		passes := pattern.Check([]string{uri.String()}, "north", b) == nil
		return !passes || a == b
	}
	if err := quick.Check(property, &quick.Config{MaxCount: 20_000}); err != nil {
		t.Error(err)
	}
	for _, a := range []string{"a", "a/b", "{cluster}", "{service}", "a%2Fb", "../x", "a?b", "a#b", ""} {
		for _, b := range []string{"a", "a/b", "{cluster}", "{service}", "a%2Fb", "../x", "a?b", "a#b", "north", ""} {
			if !property(a, b) {
				t.Errorf("%q passes for %q", a, b)
			}
		}
	}
}
