package serve

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/identity"
	"spillway.dev/relay/internal/serve/protocol"
)

// Answer is how one Envoy answered one version of one resource type.
type Answer struct {
	Service, Envoy string
	TypeURL        string
	Version        string // version of the Set
	Refused        bool
	Detail         string // the Envoy's message with a refusal
}

// Observer receives what happens on the streams. Its methods must not block for long.
type Observer interface {
	Connected(service, envoy string)    // at each new stream
	Disconnected(service, envoy string) // at the end of a stream
	Answered(Answer)                    // once per (stream, type, version, outcome)
}

// Streams tracks every open stream: which Envoys are connected, and which version each answer
// belongs to.
type Streams struct {
	Cluster  string
	Identity identity.Pattern
	Mesh     identity.Mesh // the Istio mesh whose sidecars are admitted; nil: none
	Observer Observer
	Loads    Loads
	Counters *count.Counters
	Log      *slog.Logger
	// PushToAck observes the seconds from a response to its acceptance.
	PushToAck prometheus.Observer

	mu        sync.Mutex
	open      map[*stream]struct{} // of xDS
	reporting map[*stream]struct{} // of the Load Reporting Service
	leaving   bool                 // no stream is admitted any more
}

// Connected returns the number of connected Envoys by service: distinct node ids with an open
// stream.
func (s *Streams) Connected() map[string]int {
	return numbers(s.envoys(func(*stream) bool { return true }))
}

// Placed returns the number of placed Envoys by service. An Envoy is placed when it is connected
// and holds resources that it accepted, on this stream or, as it said when it reconnected, before.
// An Envoy that only refuses, or that asks for nothing, serves no requests.
func (s *Streams) Placed() map[string]int { return numbers(s.PlacedEnvoys()) }

// PlacedEnvoys returns the node ids of the Envoys that Placed counts.
func (s *Streams) PlacedEnvoys() map[string][]string {
	return s.envoys(func(st *stream) bool { return st.subs.Placed() })
}

func numbers(envoys map[string][]string) map[string]int {
	out := make(map[string]int, len(envoys))
	for service, names := range envoys {
		out[service] = len(names)
	}
	return out
}

// envoys returns the node ids of the streams for which `counts` is true, by service, each once.
func (s *Streams) envoys(counts func(*stream) bool) map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[identified]bool{}
	envoys := map[string][]string{}
	for st := range s.open {
		st.mu.Lock()
		if st.node.envoy != "" && !seen[st.node] && counts(st) {
			seen[st.node] = true
			envoys[st.node.service] = append(envoys[st.node.service], st.node.envoy)
		}
		st.mu.Unlock()
	}
	return envoys
}

// opened admits a stream of xDS, unless the relay is leaving.
func (s *Streams) opened(st *stream) error { return s.admit(st, &s.open) }

// admit adds the stream to the set, unless the relay is leaving.
func (s *Streams) admit(st *stream, set *map[*stream]struct{}) error {
	from, _ := peer.FromContext(st.Context())
	st.from, _ = from.AuthInfo.(*caller)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving || st.from == nil {
		return status.Error(codes.Unavailable, "this relay is shutting down; connect to another relay, or again")
	}
	if *set == nil {
		*set = map[*stream]struct{}{}
	}
	(*set)[st] = struct{}{}
	return nil
}

func (s *Streams) closed(st *stream) {
	s.mu.Lock()
	delete(s.open, st)
	s.mu.Unlock()
	if st.node.envoy != "" {
		s.Observer.Disconnected(st.node.service, st.node.envoy)
	}
}

// leave admits no more streams and closes the connection of every open one, in random order, evenly
// over `spread`. Nothing else wakes a handler that waits for its Envoy. The Envoy, which was told
// that the connection is going away, sees UNAVAILABLE, keeps its resources and reconnects.
func (s *Streams) leave(spread time.Duration) {
	s.mu.Lock()
	s.leaving = true
	callers := make(map[*caller]struct{}, len(s.open)) // each once, with streams of one kind or both
	for _, set := range []map[*stream]struct{}{s.open, s.reporting} {
		for st := range set {
			callers[st.from] = struct{}{}
		}
	}
	s.mu.Unlock()
	going := slices.Collect(maps.Keys(callers)) // Go iterates over a map in random order
	begun := time.Now()
	for i, c := range going {
		time.Sleep(time.Until(begun.Add(spread * time.Duration(i) / time.Duration(len(going)))))
		c.conn.Close() // it may be closed
	}
}

// request handles one request: it identifies the node, updates what the stream asks for, and
// reports an answer.
func (s *Streams) request(st *stream, r protocol.Request) error {
	st.mu.Lock()
	isFirst := st.node.envoy == ""
	if err := s.identify(st, r.Node); err != nil {
		st.mu.Unlock()
		return err
	}
	answer, isNew, err := st.subs.Take(r)
	st.mu.Unlock()
	if isFirst {
		s.Counters.Add(count.StreamsOpened)
		s.Observer.Connected(st.node.service, st.node.envoy)
	}
	if isNew {
		s.answered(st.node, answer)
	}
	if err != nil {
		return s.refuse(st.node.envoy, count.StreamsRefusedRequest, err)
	}
	return nil
}

// answered reports an answer of the node.
func (s *Streams) answered(node identified, answer protocol.Answer) {
	if !answer.Refused {
		s.PushToAck.Observe(answer.Took.Seconds())
	}
	s.Observer.Answered(Answer{Service: node.service, Envoy: node.envoy, TypeURL: answer.TypeURL, Version: answer.Version,
		Refused: answer.Refused, Detail: answer.Detail})
}

// refuse counts and logs the reason why a stream is ended, and returns the problem.
func (s *Streams) refuse(envoy string, reason count.Counter, problem error) error {
	s.Counters.Add(reason)
	s.Log.Warn("an xDS stream is refused", "node", envoy, "error", problem)
	return problem
}
