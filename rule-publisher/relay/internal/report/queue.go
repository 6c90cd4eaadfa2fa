// Package report tells the publisher, over NATS, what the Envoys answered and which are connected.
package report

import (
	"slices"
	"sync"
)

// Queue holds items that have not been sent yet. Put never blocks: when the queue is full, the
// oldest item is dropped.
type Queue[T comparable] struct {
	mu     sync.Mutex
	items  []T
	limit  int
	signal chan struct{}
	onDrop func()
}

// NewQueue creates a queue of at most `limit` items. onDrop is called for each item that is
// dropped.
func NewQueue[T comparable](limit int, onDrop func()) *Queue[T] {
	return &Queue[T]{limit: limit, signal: make(chan struct{}, 1), onDrop: onDrop}
}

// Put appends an item.
func (q *Queue[T]) Put(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) >= q.limit {
		q.items = q.items[1:]
		q.onDrop()
	}
	q.items = append(q.items, item)
	select {
	case q.signal <- struct{}{}:
	default:
	}
}

// First returns a copy of at most n of the oldest items, which stay in the queue until Done.
func (q *Queue[T]) First(n int) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.items[:min(n, len(q.items))])
}

// Done removes the item if it is still the oldest: it may have been dropped in the meantime.
func (q *Queue[T]) Done(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) > 0 && q.items[0] == item {
		var none T
		q.items[0] = none
		q.items = q.items[1:]
	}
}

// Len returns the number of items in the queue.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// Signal returns a channel that receives a value after Put.
func (q *Queue[T]) Signal() <-chan struct{} { return q.signal }
