package serve

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"spillway.dev/relay/internal/count"
)

// Answer is what one Envoy said to one version of one resource type.
type Answer struct {
	Service, Envoy string
	TypeURL        string
	Version        string // of the Set
	Refused        bool
	Detail         string // Envoy's message of a refusal
}

// Observer is told what happens on the streams. Its calls must not block for long.
type Observer interface {
	Connected(service string) // at each new stream
	Answered(Answer)          // once per (stream, type, version, outcome)
}

type streamKey struct {
	delta bool // the library numbers streams of the two kinds apart
	id    int64
}

type sent struct{ nonce, version string }

type streamState struct {
	service, envoy string
	sent           map[string]sent   // by type URL: the newest response
	answered       map[string]Answer // by type URL: the newest answer, to tell each once
}

// Streams follows every open stream: who is connected, and which answer belongs to which version.
type Streams struct {
	cluster  string
	observer Observer
	counters *count.Counters

	mu      sync.Mutex
	streams map[streamKey]*streamState
}

// NewStreams follows streams of the cluster's Envoys.
func NewStreams(cluster string, observer Observer, counters *count.Counters) *Streams {
	return &Streams{cluster: cluster, observer: observer, counters: counters, streams: map[streamKey]*streamState{}}
}

// Connected Envoys by service: distinct node ids with an open stream.
func (s *Streams) Connected() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[[2]string]bool{}
	connected := map[string]int{}
	for _, st := range s.streams {
		if id := [2]string{st.service, st.envoy}; !seen[id] {
			seen[id] = true
			connected[st.service]++
		}
	}
	return connected
}

// callbacks of the xDS library for both protocol variants.
func (s *Streams) callbacks() server.Callbacks {
	return server.CallbackFuncs{
		StreamClosedFunc:      func(id int64, _ *core.Node) { s.closed(streamKey{false, id}) },
		DeltaStreamClosedFunc: func(id int64, _ *core.Node) { s.closed(streamKey{true, id}) },
		StreamRequestFunc: func(id int64, r *discovery.DiscoveryRequest) error {
			refused, err := s.request(streamKey{false, id}, r.GetNode(), r.GetTypeUrl(), r.GetResponseNonce(), r.GetErrorDetail(), &r.VersionInfo)
			if refused != "" {
				// The refused version counts as delivered. Otherwise the library, which sees that the
				// Envoy is behind, would send the same again at once and for ever.
				r.VersionInfo = refused
			}
			return err
		},
		StreamDeltaRequestFunc: func(id int64, r *discovery.DeltaDiscoveryRequest) error {
			_, err := s.request(streamKey{true, id}, r.GetNode(), r.GetTypeUrl(), r.GetResponseNonce(), r.GetErrorDetail(), nil)
			return err
		},
		StreamResponseFunc: func(_ context.Context, id int64, _ *discovery.DiscoveryRequest, r *discovery.DiscoveryResponse) {
			slices.SortFunc(r.Resources, func(a, b *anypb.Any) int { return bytes.Compare(a.GetValue(), b.GetValue()) })
			s.responded(streamKey{false, id}, r.GetTypeUrl(), sent{r.GetNonce(), r.GetVersionInfo()})
		},
		StreamDeltaResponseFunc: func(id int64, _ *discovery.DeltaDiscoveryRequest, r *discovery.DeltaDiscoveryResponse) {
			slices.SortFunc(r.Resources, func(a, b *discovery.Resource) int { return strings.Compare(a.GetName(), b.GetName()) })
			slices.Sort(r.RemovedResources)
			s.responded(streamKey{true, id}, r.GetTypeUrl(), sent{r.GetNonce(), r.GetSystemVersionInfo()})
		},
	}
}

// request follows one request; `refused` is the version that it refuses, if it does. `holds` is the
// version that the Envoy says it has; only the state-of-the-world variant says it.
func (s *Streams) request(key streamKey, node *core.Node, typeURL, nonce string, failure *statuspb.Status,
	holds *string) (refused string, err error) {
	s.mu.Lock()
	st := s.streams[key]
	opened := st == nil
	if opened {
		if err := s.identify(node); err != nil {
			s.mu.Unlock()
			s.counters.Add(count.StreamsRefusedNode)
			return "", err
		}
		st = &streamState{service: node.GetCluster(), envoy: node.GetId(), sent: map[string]sent{}, answered: map[string]Answer{}}
		s.streams[key] = st
	}
	answer, isNew := st.answer(typeURL, nonce, failure, holds)
	s.mu.Unlock()
	if opened {
		s.observer.Connected(st.service)
	}
	if isNew {
		s.observer.Answered(answer)
	}
	if answer.Refused {
		refused = answer.Version
	}
	return refused, nil
}

// identify refuses Envoys that do not say who they are, or that belong to another cluster: what
// this relay serves would be wrong for them.
func (s *Streams) identify(node *core.Node) error {
	zone := node.GetLocality().GetZone()
	switch {
	case node.GetId() == "":
		return status.Error(codes.InvalidArgument, "node.id: empty; must be <cluster>/<service>/<pod>")
	case node.GetCluster() == "":
		return status.Error(codes.InvalidArgument, "node.cluster: empty; must be the service's name")
	case zone != s.cluster:
		return status.Error(codes.PermissionDenied,
			fmt.Sprintf("node.locality.zone: %q; this relay serves cluster %q", zone, s.cluster))
	}
	return nil
}

// answer reads a request as the answer to the newest response of its type; isNew is false when it
// is none, or when it repeats itself (a changed subscription repeats the last nonce, and after a
// refusal also the version before it).
func (st *streamState) answer(typeURL, nonce string, failure *statuspb.Status, holds *string) (answer Answer, isNew bool) {
	last, ok := st.sent[typeURL]
	if !ok || nonce == "" || nonce != last.nonce {
		return Answer{}, false
	}
	if failure == nil && holds != nil && *holds != last.version {
		return Answer{}, false
	}
	answer = Answer{Service: st.service, Envoy: st.envoy, TypeURL: typeURL, Version: last.version,
		Refused: failure != nil, Detail: failure.GetMessage()}
	if st.answered[typeURL] == answer {
		return answer, false
	}
	st.answered[typeURL] = answer
	return answer, true
}

func (s *Streams) responded(key streamKey, typeURL string, what sent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.streams[key]; st != nil {
		st.sent[typeURL] = what
	}
}

func (s *Streams) closed(key streamKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, key)
}
