package serve

import (
	"context"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"spillway.dev/relay/internal/count"
)

// identified is who a node said that it is; a stream keeps it for life.
type identified struct{ service, envoy, cluster string }

// opened notes whom the stream's certificate speaks for. A stream without TLS has nothing to show.
func (s *Streams) opened(ctx context.Context, key streamKey) error {
	st := &streamState{sent: map[string]sent{}, answered: map[string]Answer{}}
	if from, ok := peer.FromContext(ctx); ok {
		if info, ok := from.AuthInfo.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			for _, uri := range info.State.PeerCertificates[0].URIs {
				st.presented = append(st.presented, uri.String())
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams == nil {
		s.streams = map[streamKey]*streamState{}
	}
	s.streams[key] = st
	return nil
}

// identify refuses Envoys that do not say who they are, that belong to another cluster (what this
// relay serves would be wrong for them), whose certificate is another's, or who change their name.
func (s *Streams) identify(st *streamState, node *core.Node) error {
	if node == nil && st.node.envoy != "" {
		return nil
	}
	said := identified{node.GetCluster(), node.GetId(), node.GetLocality().GetZone()}
	if said == st.node {
		return nil
	}
	problem, counter := s.problem(st, said)
	if problem == nil {
		st.node = said
		return nil
	}
	s.Counters.Add(counter)
	s.Log.Warn("an xDS stream is refused", "node", said.envoy, "error", problem)
	return problem
}

func (s *Streams) problem(st *streamState, said identified) (error, count.Counter) {
	switch {
	case said.envoy == "":
		return status.Error(codes.InvalidArgument, "node.id: empty; must be <cluster>/<service>/<pod>"), count.StreamsRefusedNode
	case said.service == "":
		return status.Error(codes.InvalidArgument, "node.cluster: empty; must be the service's name"), count.StreamsRefusedNode
	case said.cluster != s.Cluster:
		return status.Errorf(codes.PermissionDenied, "node.locality.zone: %q; this relay serves cluster %q", said.cluster, s.Cluster),
			count.StreamsRefusedNode
	case !strings.HasPrefix(said.envoy, said.cluster+"/"+said.service+"/"):
		// Else it could answer in another's name: acknowledgements are kept by node id.
		return status.Errorf(codes.PermissionDenied, "node.id: %q; must begin with %q", said.envoy, said.cluster+"/"+said.service+"/"),
			count.StreamsRefusedNode
	case st.node.envoy != "":
		return status.Errorf(codes.PermissionDenied, "node: was %q of %q, is now %q of %q; a stream keeps its node",
			st.node.envoy, st.node.service, said.envoy, said.service), count.StreamsRefusedIdentity
	}
	if err := s.Identity.Check(st.presented, said.cluster, said.service); err != nil {
		return status.Error(codes.PermissionDenied, err.Error()), count.StreamsRefusedIdentity
	}
	return nil, 0
}
