package serve

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

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

// Streams follows every open stream: who is connected, and which answer belongs to which version.
type Streams struct {
	Cluster  string
	Identity identity.Pattern
	Mesh     identity.Mesh // of an Istio mesh whose sidecars are let in; nil: none
	Observer Observer
	Counters *count.Counters
	Log      *slog.Logger
	// PushToAck observes seconds from a response to its acceptance.
	PushToAck prometheus.Observer

	mu      sync.Mutex
	open    map[*stream]struct{}
	leaving bool // none is let in
}

// Connected Envoys by service: distinct node ids with an open stream.
func (s *Streams) Connected() map[string]int {
	return numbers(s.envoys(func(*stream) bool { return true }))
}

// Placed Envoys by service: those connected that hold resources which they accepted, now or, as they
// said when they came back, before. One that only refuses, or asks for nothing, serves nobody.
func (s *Streams) Placed() map[string]int { return numbers(s.PlacedEnvoys()) }

// PlacedEnvoys are the node ids of Placed.
func (s *Streams) PlacedEnvoys() map[string][]string {
	return s.envoys(func(st *stream) bool { return st.placed })
}

func numbers(envoys map[string][]string) map[string]int {
	out := make(map[string]int, len(envoys))
	for service, names := range envoys {
		out[service] = len(names)
	}
	return out
}

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

// opened lets the stream in, unless the relay is leaving.
func (s *Streams) opened(st *stream) error {
	from, _ := peer.FromContext(st.Context())
	st.from, _ = from.AuthInfo.(*caller)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving || st.from == nil {
		return status.Error(codes.Unavailable, "this relay is going away; come to another, or again")
	}
	if s.open == nil {
		s.open = map[*stream]struct{}{}
	}
	s.open[st] = struct{}{}
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

// leave lets none in, and ends the connection of every stream, in no particular order, evenly over the
// time given. A handler that waits for its Envoy is woken by nothing else; the Envoy, which was told
// that the connection is going away, takes it as UNAVAILABLE, keeps what it has and comes again.
func (s *Streams) leave(spread time.Duration) {
	s.mu.Lock()
	s.leaving = true
	going := make([]*caller, 0, len(s.open))
	for st := range s.open { // the language visits a map in random order
		going = append(going, st.from)
	}
	s.mu.Unlock()
	begun := time.Now()
	for i, c := range going {
		time.Sleep(time.Until(begun.Add(spread * time.Duration(i) / time.Duration(len(going)))))
		c.conn.Close() //nolint:errcheck // it may be closed
	}
}

// request follows one request, and has the stream's subscription take it.
func (s *Streams) request(st *stream, r request) error {
	st.mu.Lock()
	isFirst := st.node.envoy == ""
	if err := s.identify(st, r.node); err != nil {
		st.mu.Unlock()
		return err
	}
	sub, err := st.subscription(r)
	if err != nil {
		st.mu.Unlock()
		return s.refuse(st.node.envoy, count.StreamsRefusedRequest, err)
	}
	answer, isNew := st.answer(sub, r)
	if isNew && !answer.Refused {
		s.PushToAck.Observe(time.Since(sub.sent.at).Seconds())
	}
	st.placed = st.placed || len(r.initial) > 0 || r.version != "" || isNew && !answer.Refused
	st.take(sub, r, answer.Refused)
	if len(r.names) > 0 {
		err = st.overfull()
	}
	st.mu.Unlock()
	if isFirst {
		s.Counters.Add(count.StreamsOpened)
		s.Observer.Connected(st.node.service, st.node.envoy)
	}
	if isNew {
		s.Observer.Answered(answer)
	}
	if err != nil {
		return s.refuse(st.node.envoy, count.StreamsRefusedRequest, err)
	}
	return nil
}

// answer reads a request as the answer to the newest response of its type; isNew is false when it
// is none, or when it repeats itself (a changed subscription repeats the last nonce, and after a
// refusal also the version before it).
func (st *stream) answer(sub *subscription, r request) (answer Answer, isNew bool) {
	last := sub.sent
	if r.nonce == "" || r.nonce != last.nonce {
		return Answer{}, false
	}
	if r.failure == nil && !st.delta && r.version != last.version {
		return Answer{}, false
	}
	say := told{last.version, bounded(r.failure.GetMessage()), r.failure != nil}
	isNew = sub.answered != say
	sub.answered = say
	return Answer{Service: st.node.service, Envoy: st.node.envoy, TypeURL: sub.typeURL, Version: say.version,
		Refused: say.refused, Detail: say.detail}, isNew
}

// bounded keeps the words of one Envoy from filling the queue of acknowledgements.
func bounded(detail string) string {
	if len(detail) <= detailLimit {
		return detail
	}
	return strings.ToValidUTF8(detail[:detailLimit], "") + " …"
}
