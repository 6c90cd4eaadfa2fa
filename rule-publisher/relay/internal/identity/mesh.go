package identity

import (
	"errors"
	"fmt"
	"strings"
)

const meshService = "/sa/{service}"

// Mesh lists the prefixes of the URI SANs by which an Istio mesh identifies its sidecars. There is
// one prefix for each admitted namespace: spiffe://<trust domain>/ns/<namespace>/sa/. The rest of a
// URI SAN is the service account, which must be the service's name.
type Mesh []string

// ParseMesh reads comma-separated patterns of the form spiffe://<trust
// domain>/ns/<namespace>/sa/{service}.
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

// Service returns the service that a sidecar's certificate speaks for. The node that a sidecar
// sends cannot be trusted to name its service or its cluster, so only the certificate decides.
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
