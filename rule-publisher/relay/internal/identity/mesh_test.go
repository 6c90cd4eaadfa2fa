package identity

import (
	"strings"
	"testing"
)

// TestParseMesh checks that a pattern must name one namespace and leave only the service account
// open. No pattern can admit a whole mesh.
func TestParseMesh(t *testing.T) {
	for text, want := range map[string]string{
		"spiffe://cluster.local/ns/shop/sa/{service}":                    "",
		"spiffe://a/ns/shop/sa/{service},spiffe://a/ns/pay/sa/{service}": "",
		"spiffe://cluster.local/ns/shop/sa/cart":                         "{service} 0 times",
		"spiffe://cluster.local/ns/{namespace}/sa/{service}":             "braces",
		"spiffe://cluster.local/ns/shop/{service}":                       "is not spiffe://",
		"spiffe://cluster.local/ns/shop/sa/{service}/x":                  "is not spiffe://",
		"spiffe://cluster.local/cluster/{cluster}/ns/shop/sa/{service}":  "is not spiffe://",
		"spiffe://cluster.local/ns/shop/sa/{service},":                   "0 times",
		"": "0 times",
	} {
		if _, err := ParseMesh(text); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestMeshService checks that a certificate speaks only for the service account that it names, and
// only in an admitted namespace.
func TestMeshService(t *testing.T) {
	mesh := Mesh{"spiffe://mesh/ns/shop/sa/", "spiffe://mesh/ns/pay/sa/"}
	for uri, want := range map[string]string{
		"spiffe://mesh/ns/shop/sa/gate":  "gate",
		"spiffe://mesh/ns/pay/sa/till":   "till",
		"spiffe://mesh/ns/shop/sa/":      "",
		"spiffe://mesh/ns/shop/sa/a/b":   "",
		"spiffe://mesh/ns/other/sa/gate": "",
		"spiffe://other/ns/shop/sa/gate": "",
		"xspiffe://mesh/ns/shop/sa/gate": "",
	} {
		if got, err := mesh.Service([]string{"spiffe://x/y", uri}); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", uri, got, err, want)
		}
	}
	if _, err := Mesh(nil).Service([]string{"spiffe://mesh/ns/shop/sa/gate"}); err == nil {
		t.Error("without a mesh nobody is let in as a sidecar")
	}
}
