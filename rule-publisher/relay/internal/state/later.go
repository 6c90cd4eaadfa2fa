package state

import (
	"sync"
	"time"
)

// Later writes the newest of the values that it is given, in a goroutine that exists only while
// there is something to write. Callers of Put never wait for the disk.
type Later[T any] struct {
	Write func(T)

	mu      sync.Mutex
	next    *T // nil: nothing waits
	writing bool
	idle    chan struct{} // closed when nothing is being written any more
}

// Put replaces the value that waits to be written.
func (l *Later[T]) Put(value T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = &value
	if !l.writing {
		l.writing, l.idle = true, make(chan struct{})
		go l.run()
	}
}

func (l *Later[T]) run() {
	for value := l.take(); value != nil; value = l.take() {
		l.Write(*value)
	}
}

// take removes and returns the waiting value. When there is none, it returns nil and closes `idle`.
func (l *Later[T]) take() *T {
	l.mu.Lock()
	defer l.mu.Unlock()
	value := l.next
	l.next = nil
	if value == nil {
		l.writing = false
		close(l.idle)
	}
	return value
}

// Wait blocks until no value is being written or waits. It returns false when that takes longer
// than `most`.
func (l *Later[T]) Wait(most time.Duration) bool {
	l.mu.Lock()
	writing, idle := l.writing, l.idle
	l.mu.Unlock()
	if !writing {
		return true
	}
	timeout := time.NewTimer(most)
	defer timeout.Stop()
	select {
	case <-idle:
		return true
	case <-timeout.C:
		return false
	}
}
