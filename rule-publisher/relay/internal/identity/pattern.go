// Package identity holds the relay's side of mutual TLS on xDS: the relay's own certificate, the
// authorities that it trusts, and the check of which node a client certificate speaks for.
package identity

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Pattern is the URI SAN of an Envoy's certificate, with {cluster} and {service} as placeholders.
type Pattern string

// ParsePattern validates a pattern. It refuses one that would let a single certificate speak for
// several services or clusters, and one that can never be a URI SAN.
func ParsePattern(text string) (Pattern, error) {
	if err := placed(text, "{cluster}", "{service}"); err != nil {
		return "", err
	}
	return Pattern(text), nil
}

// placed returns nil when the text contains each placeholder exactly once and no other braces, and
// is a URI with a scheme and a host once they are filled in.
func placed(text string, parts ...string) error {
	for _, part := range parts {
		if strings.Count(text, part) != 1 {
			return fmt.Errorf("%q has %s %d times; must have it once", text, part, strings.Count(text, part))
		}
	}
	filled := Pattern(text).Fill("c", "s")
	example, err := url.Parse(filled)
	if err != nil || example.Scheme == "" || example.Host == "" {
		return fmt.Errorf("%q is not a URI with a scheme and a host", text)
	}
	if strings.ContainsAny(filled, "{}") {
		return fmt.Errorf("%q has braces beside %s", text, strings.Join(parts, " and "))
	}
	return nil
}

// Fill replaces the placeholders by the values. It replaces both in one pass, so a service named
// "{cluster}" is not expanded again.
func (p Pattern) Fill(cluster, service string) string {
	return strings.NewReplacer("{cluster}", cluster, "{service}", service).Replace(string(p))
}

// Check returns nil when the certificate's URI SANs include the one of the service in the cluster.
// Otherwise the error names what was presented and what is needed.
func (p Pattern) Check(presented []string, cluster, service string) error {
	needed := p.Fill(cluster, service)
	if slices.Contains(presented, needed) {
		return nil
	}
	return fmt.Errorf("the certificate's URI SANs are %q; node.cluster %q in node.locality.zone %q needs %q",
		presented, service, cluster, needed)
}
