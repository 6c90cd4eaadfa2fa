package identity

import (
	"errors"
	"fmt"
	"strings"
)

const meshService = "/sa/{service}"

// Mesh has the beginnings of the URI SANs by which an Istio mesh knows its sidecars, one for each namespace
// that is let in: spiffe://<trust domain>/ns/<namespace>/sa/. What follows is the service account, which
// is the service's name.
type Mesh []string

// ParseMesh reads patterns that are separated by commas: spiffe://<trust domain>/ns/<namespace>/sa/{service}.
func ParseMesh(text string) (Mesh, error) {
	var mesh Mesh
	var problems []error
	for _, one := range strings.Split(text, ",") {
		if err := placed(one, "{service}"); err != nil {
			problems = append(problems, err)
		} else if !strings.HasSuffix(one, meshService) || !strings.Contains(one, "/ns/") || strings.Contains(one, "{cluster}") {
			problems = append(problems, fmt.Errorf("%q is not spiffe://<trust domain>/ns/<namespace>%s", one, meshService))
		}
		mesh = append(mesh, strings.TrimSuffix(one, "{service}"))
	}
	return mesh, errors.Join(problems...)
}

// Service is the one that a sidecar's certificate speaks for. A sidecar says itself neither its service nor its
// cluster in a way that could be believed; its certificate does.
func (m Mesh) Service(presented []string) (string, error) {
	for _, uri := range presented {
		for _, beginning := range m {
			if service, found := strings.CutPrefix(uri, beginning); found && service != "" && !strings.Contains(service, "/") {
				return service, nil
			}
		}
	}
	return "", fmt.Errorf("the certificate's URI SANs are %q; a sidecar needs one that begins with one of %q", presented, []string(m))
}
