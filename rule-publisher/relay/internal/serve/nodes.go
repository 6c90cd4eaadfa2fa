package serve

import (
	"crypto/tls"
	"net"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"spillway.dev/relay/internal/count"
)

// nodeLimit bounds each name in a node, in bytes. Acknowledgements carry these names.
const nodeLimit = 512

// identified is the identity that a node has claimed. It stays the same for the life of a stream.
type identified struct {
	service, envoy, cluster string
	mesh                    bool // an Istio sidecar: the service comes from its certificate
}

// caller is the peer of a connection. Of its certificate only the names are kept.
type caller struct {
	credentials.CommonAuthInfo
	presented []string // URI SANs
	conn      net.Conn
}

// AuthType implements credentials.AuthInfo.
func (*caller) AuthType() string { return "tls" }

func newCaller(conn net.Conn, state tls.ConnectionState) *caller {
	c := &caller{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, conn: conn}
	if len(state.VerifiedChains) > 0 {
		for _, uri := range state.PeerCertificates[0].URIs {
			c.presented = append(c.presented, uri.String())
		}
	}
	return c
}

// identify checks the node and stores its identity in the stream. It refuses an Envoy that does not
// name itself, that belongs to another cluster (this relay's resources would be wrong for it),
// whose certificate is for another service, or that changes its name.
func (s *Streams) identify(st *stream, node *core.Node) error {
	if node == nil && st.node.envoy != "" {
		return nil
	}
	claimed, err := s.claimed(st, node)
	if err != nil {
		return s.refuse("", count.StreamsRefusedIdentity, err)
	}
	if claimed == st.node {
		return nil
	}
	if reason, problem := s.refusal(st, claimed); problem != nil {
		return s.refuse(claimed.envoy[:min(len(claimed.envoy), nodeLimit)], reason, problem)
	}
	st.node = claimed
	return nil
}

// claimed returns the identity that the node claims. An Istio sidecar, whose id is
// sidecar~<address>~<pod>.<namespace>~<domain>, belongs to the service that its certificate names.
func (s *Streams) claimed(st *stream, node *core.Node) (identified, error) {
	parts := strings.Split(node.GetId(), "~")
	if len(s.Mesh) == 0 || len(parts) != 4 || parts[0] != "sidecar" {
		return identified{service: node.GetCluster(), envoy: node.GetId(), cluster: node.GetLocality().GetZone()}, nil
	}
	service, err := s.Mesh.Service(st.from.presented)
	if err != nil {
		return identified{}, status.Error(codes.PermissionDenied, err.Error())
	}
	return identified{service, s.Cluster + "/" + service + "/" + parts[2], s.Cluster, true}, nil
}

// refusal returns why the claimed identity is refused, as the counter of the reason and the status
// of the stream; nil when it is not.
func (s *Streams) refusal(st *stream, claimed identified) (count.Counter, error) {
	switch longest := max(len(claimed.envoy), len(claimed.service), len(claimed.cluster)); {
	case longest > nodeLimit:
		return count.StreamsRefusedNode, status.Errorf(codes.InvalidArgument,
			"node: a name of %d bytes; id, cluster and locality.zone have at most %d", longest, nodeLimit)
	case claimed.envoy == "":
		return count.StreamsRefusedNode, status.Error(codes.InvalidArgument, "node.id: empty; must be <cluster>/<service>/<pod>")
	case claimed.service == "":
		return count.StreamsRefusedNode, status.Error(codes.InvalidArgument, "node.cluster: empty; must be the service's name")
	case claimed.cluster != s.Cluster:
		return count.StreamsRefusedNode, status.Errorf(codes.PermissionDenied,
			"node.locality.zone: %q; this relay serves cluster %q", claimed.cluster, s.Cluster)
	case !strings.HasPrefix(claimed.envoy, claimed.cluster+"/"+claimed.service+"/"):
		// Otherwise an Envoy could answer in another's name, because acknowledgements are stored by
		// node id.
		return count.StreamsRefusedNode, status.Errorf(codes.PermissionDenied,
			"node.id: %q; must begin with %q", claimed.envoy, claimed.cluster+"/"+claimed.service+"/")
	case st.node.envoy != "":
		return count.StreamsRefusedIdentity, status.Errorf(codes.PermissionDenied,
			"node: was %q of %q, is now %q of %q; a stream keeps its node", st.node.envoy, st.node.service, claimed.envoy, claimed.service)
	}
	if claimed.mesh {
		return 0, nil
	}
	if err := s.Identity.Check(st.from.presented, claimed.cluster, claimed.service); err != nil {
		return count.StreamsRefusedIdentity, status.Error(codes.PermissionDenied, err.Error())
	}
	return 0, nil
}
