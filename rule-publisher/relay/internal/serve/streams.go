package serve

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"github.com/prometheus/client_golang/prometheus"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/identity"
)

// detailLimit is in bytes.
const detailLimit = 4096

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
	Connected(service, envoy string)    // at each new stream
	Disconnected(service, envoy string) // at its end
	Answered(Answer)                    // once per (stream, type, version, outcome)
}

type streamKey struct {
	delta bool // the library numbers streams of the two kinds apart
	id    int64
}

type sent struct {
	nonce, version string
	at             time.Time
}

type streamState struct {
	presented []string // URI SANs of the peer's certificate
	node      identified
	placed    bool              // the Envoy holds something that it accepted
	sent      map[string]sent   // by type URL: the newest response
	answered  map[string]Answer // by type URL: the newest answer, to tell each once
}

// Streams follows every open stream: who is connected, and which answer belongs to which version.
type Streams struct {
	Cluster  string
	Identity identity.Pattern
	Observer Observer
	Counters *count.Counters
	Log      *slog.Logger
	// PushToAck observes seconds from a response to its acceptance.
	PushToAck prometheus.Observer

	mu      sync.Mutex
	streams map[streamKey]*streamState
}

// Connected Envoys by service: distinct node ids with an open stream.
func (s *Streams) Connected() map[string]int {
	return s.envoys(func(*streamState) bool { return true })
}

// Placed Envoys by service: those connected that hold resources which they accepted, now or, as they
// said when they came back, before. One that only refuses, or asks for nothing, serves nobody.
func (s *Streams) Placed() map[string]int {
	return s.envoys(func(st *streamState) bool { return st.placed })
}

func (s *Streams) envoys(counts func(*streamState) bool) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[identified]bool{}
	envoys := map[string]int{}
	for _, st := range s.streams {
		if st.node.envoy != "" && !seen[st.node] && counts(st) {
			seen[st.node] = true
			envoys[st.node.service]++
		}
	}
	return envoys
}

// callbacks of the xDS library for both protocol variants.
func (s *Streams) callbacks() server.Callbacks {
	return server.CallbackFuncs{
		StreamOpenFunc:        func(ctx context.Context, id int64, _ string) error { return s.opened(ctx, streamKey{false, id}) },
		DeltaStreamOpenFunc:   func(ctx context.Context, id int64, _ string) error { return s.opened(ctx, streamKey{true, id}) },
		StreamClosedFunc:      func(id int64, _ *core.Node) { s.closed(streamKey{false, id}) },
		DeltaStreamClosedFunc: func(id int64, _ *core.Node) { s.closed(streamKey{true, id}) },
		StreamRequestFunc: func(id int64, r *discovery.DiscoveryRequest) error {
			refused, err := s.request(streamKey{false, id}, request{node: r.GetNode(), typeURL: r.GetTypeUrl(),
				nonce: r.GetResponseNonce(), failure: r.GetErrorDetail(), holds: &r.VersionInfo, holdsAny: r.GetVersionInfo() != ""})
			if refused != "" {
				// The refused version counts as delivered. Otherwise the library, which sees that the
				// Envoy is behind, would send the same again at once and for ever.
				r.VersionInfo = refused
			}
			return err
		},
		StreamDeltaRequestFunc: func(id int64, r *discovery.DeltaDiscoveryRequest) error {
			_, err := s.request(streamKey{true, id}, request{node: r.GetNode(), typeURL: r.GetTypeUrl(),
				nonce: r.GetResponseNonce(), failure: r.GetErrorDetail(), holdsAny: len(r.GetInitialResourceVersions()) > 0})
			return err
		},
		StreamResponseFunc: func(_ context.Context, id int64, _ *discovery.DiscoveryRequest, r *discovery.DiscoveryResponse) {
			slices.SortFunc(r.Resources, func(a, b *anypb.Any) int { return bytes.Compare(a.GetValue(), b.GetValue()) })
			s.responded(streamKey{false, id}, r.GetTypeUrl(), sent{r.GetNonce(), r.GetVersionInfo(), time.Now()})
		},
		StreamDeltaResponseFunc: func(id int64, _ *discovery.DeltaDiscoveryRequest, r *discovery.DeltaDiscoveryResponse) {
			slices.SortFunc(r.Resources, func(a, b *discovery.Resource) int { return strings.Compare(a.GetName(), b.GetName()) })
			slices.Sort(r.RemovedResources)
			s.responded(streamKey{true, id}, r.GetTypeUrl(), sent{r.GetNonce(), r.GetSystemVersionInfo(), time.Now()})
		},
	}
}

// request is what both variants of the protocol say.
type request struct {
	node           *core.Node // only the first one of a stream must have it
	typeURL, nonce string
	failure        *statuspb.Status
	holds          *string // the version that the Envoy says it has; state-of-the-world only
	holdsAny       bool    // the Envoy has accepted resources of the type before
}

// request follows one request; `refused` is the version that it refuses, if it does.
func (s *Streams) request(key streamKey, r request) (refused string, err error) {
	s.mu.Lock()
	st := s.streams[key]
	isFirst := st.node.envoy == ""
	if err := s.identify(st, r.node); err != nil {
		s.mu.Unlock()
		return "", err
	}
	answer, isNew := st.answer(r)
	if isNew && !answer.Refused {
		s.PushToAck.Observe(time.Since(st.sent[r.typeURL].at).Seconds())
	}
	st.placed = st.placed || r.holdsAny || isNew && !answer.Refused
	s.mu.Unlock()
	if isFirst {
		s.Counters.Add(count.StreamsOpened)
		s.Observer.Connected(st.node.service, st.node.envoy)
	}
	if isNew {
		s.Observer.Answered(answer)
	}
	if answer.Refused {
		refused = answer.Version
	}
	return refused, nil
}

// answer reads a request as the answer to the newest response of its type; isNew is false when it
// is none, or when it repeats itself (a changed subscription repeats the last nonce, and after a
// refusal also the version before it).
func (st *streamState) answer(r request) (answer Answer, isNew bool) {
	last, ok := st.sent[r.typeURL]
	if !ok || r.nonce == "" || r.nonce != last.nonce {
		return Answer{}, false
	}
	if r.failure == nil && r.holds != nil && *r.holds != last.version {
		return Answer{}, false
	}
	answer = Answer{Service: st.node.service, Envoy: st.node.envoy, TypeURL: r.typeURL, Version: last.version,
		Refused: r.failure != nil, Detail: bounded(r.failure.GetMessage())}
	if st.answered[r.typeURL] == answer {
		return answer, false
	}
	st.answered[r.typeURL] = answer
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
	st := s.streams[key]
	delete(s.streams, key)
	s.mu.Unlock()
	if st != nil && st.node.envoy != "" {
		s.Observer.Disconnected(st.node.service, st.node.envoy)
	}
}

// bounded keeps the words of one Envoy from filling the queue of acknowledgements.
func bounded(detail string) string {
	if len(detail) <= detailLimit {
		return detail
	}
	return strings.ToValidUTF8(detail[:detailLimit], "") + " …"
}
