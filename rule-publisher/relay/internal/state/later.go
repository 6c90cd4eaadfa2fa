package state

import (
	"sync"
	"time"
)

// Later writes the newest of what it is given, in a goroutine that lives as long as there is
// something to write: whoever gives never waits for the disk.
type Later[T any] struct {
	Write func(T)

	mu      sync.Mutex
	next    *T // nil: nothing waits
	writing bool
	idle    chan struct{} // closed when nothing is written any more
}

// Put replaces what waits to be written.
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

// Wait until nothing is written or waits; false when that takes longer than the time given.
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
