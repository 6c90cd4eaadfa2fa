// Package identity knows who may be on the other end of xDS, and shows who the relay is: the
// certificates of mutual TLS, and which node a certificate speaks for.
package identity

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Pattern is the URI SAN of an Envoy's certificate, with {cluster} and {service} to be filled in.
type Pattern string

// ParsePattern refuses a pattern that would let one certificate speak for several services or
// clusters, or that can never be a URI SAN.
func ParsePattern(text string) (Pattern, error) {
	if err := placed(text, "{cluster}", "{service}"); err != nil {
		return "", err
	}
	return Pattern(text), nil
}

// placed is nil when the text has the parts, once each and no others, and is a URI when they are filled in.
func placed(text string, parts ...string) error {
	for _, part := range parts {
		if strings.Count(text, part) != 1 {
			return fmt.Errorf("%q has %s %d times, must have it once", text, part, strings.Count(text, part))
		}
	}
	filled := Pattern(text).Fill("c", "s")
	example, err := url.Parse(filled)
	if err != nil || example.Scheme == "" || example.Host == "" {
		return fmt.Errorf("%q is no URI with a scheme and a host", text)
	}
	if strings.ContainsAny(filled, "{}") {
		return fmt.Errorf("%q has braces beside %s", text, strings.Join(parts, " and "))
	}
	return nil
}

// Fill in the pattern. Both values are filled in at once: a service named "{cluster}" gains nothing.
func (p Pattern) Fill(cluster, service string) string {
	return strings.NewReplacer("{cluster}", cluster, "{service}", service).Replace(string(p))
}

// Check is nil when the certificate's URI SANs include that of the service in the cluster; else it
// says what was presented and what is needed.
func (p Pattern) Check(presented []string, cluster, service string) error {
	needed := p.Fill(cluster, service)
	if slices.Contains(presented, needed) {
		return nil
	}
	return fmt.Errorf("the certificate's URI SANs are %q; node.cluster %q in node.locality.zone %q needs %q",
		presented, service, cluster, needed)
}
