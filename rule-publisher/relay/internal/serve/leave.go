package serve

import (
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var errLeaving = status.Error(codes.Unavailable, "this relay is going away; come to another, or again")

// leavings can end each open stream by itself.
type leavings struct {
	mu      sync.Mutex
	leaving bool
	open    map[*leavable]struct{}
}

func newLeavings() *leavings { return &leavings{open: map[*leavable]struct{}{}} }

// leavable is a stream whose reading ends when `leave` is closed.
type leavable struct {
	grpc.ServerStream
	leave chan struct{}
}

func (l *leavings) intercept(handler any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	s := &leavable{stream, make(chan struct{})}
	if !l.add(s) {
		return errLeaving
	}
	defer l.remove(s)
	err := handle(handler, s)
	select {
	case <-s.leave:
		return errLeaving
	default:
		return err
	}
}

// RecvMsg reads in a goroutine of its own, which ends with the stream at the latest: nothing else
// wakes a handler that waits for its Envoy.
func (s *leavable) RecvMsg(message any) error {
	read := make(chan error, 1)
	go func() { read <- s.ServerStream.RecvMsg(message) }()
	select {
	case err := <-read:
		return err
	case <-s.leave:
		return errLeaving
	}
}

func (l *leavings) add(s *leavable) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leaving {
		l.open[s] = struct{}{}
	}
	return !l.leaving
}

func (l *leavings) remove(s *leavable) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, s)
}

// over ends every stream, in no particular order, evenly over the time given, and lets none in.
func (l *leavings) over(spread time.Duration) {
	l.mu.Lock()
	l.leaving = true
	going := make([]*leavable, 0, len(l.open))
	for s := range l.open { // the language visits a map in random order
		going = append(going, s)
	}
	l.mu.Unlock()
	begun := time.Now()
	for i, s := range going {
		time.Sleep(time.Until(begun.Add(spread * time.Duration(i) / time.Duration(len(going)))))
		close(s.leave)
	}
}
