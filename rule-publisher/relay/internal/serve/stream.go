package serve

import (
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/serve/protocol"
)

// stream is the stream of one Envoy, of either variant. Its handler's goroutine reads; while the
// Envoy is silent, which is nearly always, no other goroutine belongs to it. Any goroutine that
// finds a response due may send it, one at a time.
type stream struct {
	grpc.ServerStream
	from *caller

	mu      sync.Mutex
	node    identified
	service *entry // nil until the node is known
	subs    protocol.Subscriptions
	sending *protocol.Response // nil: nobody is sending
	ended   bool
	sends   sync.WaitGroup // sends by goroutines other than the handler
}

func newStream(grpc grpc.ServerStream, delta bool) *stream {
	return &stream{ServerStream: grpc, subs: protocol.Subscriptions{Delta: delta}}
}

// ads implements the gRPC service.
type ads struct {
	cache   *Cache
	streams *Streams
	discovery.UnimplementedAggregatedDiscoveryServiceServer
}

// StreamAggregatedResources is the state-of-the-world variant.
func (a *ads) StreamAggregatedResources(grpc discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return a.follow(newStream(grpc, false))
}

// DeltaAggregatedResources is the delta variant.
func (a *ads) DeltaAggregatedResources(grpc discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return a.follow(newStream(grpc, true))
}

// follow handles the stream until its end.
func (a *ads) follow(st *stream) error {
	if err := a.streams.opened(st); err != nil {
		return err
	}
	defer a.closed(st)
	for {
		r := protocol.Request{Delta: st.subs.Delta}
		if err := st.RecvMsg(&r); err != nil {
			return nil // the Envoy or its connection is gone
		}
		if err := a.take(st, &r); err != nil {
			return err
		}
	}
}

// take handles one request, and sends what is due.
func (a *ads) take(st *stream, r *protocol.Request) error {
	if err := r.Check(); err != nil {
		return a.streams.refuse(st.node.envoy, count.StreamsRefusedRequest, err)
	}
	if err := a.streams.request(st, *r); err != nil {
		return err
	}
	if st.service == nil {
		st.join(a.cache)
	}
	st.send()
	return nil
}

// closed removes the stream after its last send has ended.
func (a *ads) closed(st *stream) {
	st.mu.Lock()
	st.ended = true
	st.mu.Unlock()
	if st.service != nil {
		a.cache.leave(st.service, st)
	}
	// Nothing may be sent after the handler's end. An Envoy that reads nothing is not waited for:
	// its connection is closed.
	unread := time.AfterFunc(unreadFor, func() { st.from.conn.Close() }) // it may be closed
	st.sends.Wait()
	unread.Stop()
	a.streams.closed(st)
}

// join registers the stream for the bundle of its service.
func (st *stream) join(cache *Cache) {
	service := cache.join(st.node.service, st)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.service = service
}

// next returns the next response that is due, or nil.
func (st *stream) next() *protocol.Response {
	if st.ended {
		return nil
	}
	return st.subs.Next(st.service.servedTo(st.node.envoy))
}

// wake sends what is due in another goroutine, so that the caller does not wait for the Envoy.
func (st *stream) wake() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ended || st.sending != nil || st.service == nil {
		return
	}
	if first := st.next(); first != nil {
		st.sending = first
		st.sends.Go(func() { st.sendAll(first) })
	}
}

// send sends what is due, unless another goroutine is sending already.
func (st *stream) send() {
	st.mu.Lock()
	if st.sending != nil {
		st.mu.Unlock()
		return
	}
	next := st.next()
	st.sending = next
	st.mu.Unlock()
	st.sendAll(next)
}

// sendAll sends the given response and all that follow, until nothing is due or the connection is
// gone. The handler notices a lost connection when it reads.
func (st *stream) sendAll(next *protocol.Response) {
	for ; next != nil; next = st.after() {
		if st.SendMsg(next) != nil {
			st.mu.Lock()
			st.sending = nil
			st.mu.Unlock()
			return
		}
	}
}

// after returns the next response once one was sent. When it returns nil, nobody is sending any
// more.
func (st *stream) after() *protocol.Response {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.sending = st.next()
	return st.sending
}
