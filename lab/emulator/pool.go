package main

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// Reasons why a request got no worker.
var (
	errQueueFull    = errors.New("queue_full")
	errQueueTimeout = errors.New("queue_timeout")
	errCancelled    = errors.New("cancelled")
)

// Pool is a service's workers with a bounded first-in-first-out queue in front of them. It is an
// M/M/c queue when arrivals are Poisson and holding times exponential.
type Pool struct {
	bound   int
	timeout time.Duration

	mu         sync.Mutex
	workers    int
	busy       int           // more than workers while those that Resize removed finish their requests
	waiting    list.List     // of chan time.Time, buffered: receives the start of service
	busyTime   time.Duration // since the last TakeUtilisation
	busyEver   time.Duration // since the pool was made
	workerTime time.Duration // the number of workers, integrated over time since the last TakeUtilisation
	since      time.Time     // the times are complete up to here
}

// NewPool returns a pool of idle workers.
func NewPool(workers, bound int, timeout time.Duration) *Pool {
	return &Pool{workers: workers, bound: bound, timeout: timeout, since: time.Now()}
}

// Acquire waits for a worker and returns the instant from which it is held. That instant may be
// slightly in the past: see Release. A request that gives up while it waits leaves the queue.
func (p *Pool) Acquire(ctx context.Context) (time.Time, error) {
	p.mu.Lock()
	if p.busy < p.workers {
		now := time.Now()
		p.account(now)
		p.busy++
		p.mu.Unlock()
		return now, nil
	}
	if p.waiting.Len() >= p.bound {
		p.mu.Unlock()
		return time.Time{}, errQueueFull
	}
	granted := make(chan time.Time, 1)
	place := p.waiting.PushBack(granted)
	p.mu.Unlock()

	timer := time.NewTimer(p.timeout)
	defer timer.Stop()
	select {
	case start := <-granted:
		return start, nil
	case <-timer.C:
		return p.leave(place, granted, errQueueTimeout)
	case <-ctx.Done():
		return p.leave(place, granted, errCancelled)
	}
}

// leave gives up a place in the queue, unless a worker was assigned in the meantime.
func (p *Pool) leave(place *list.Element, granted chan time.Time, reason error) (time.Time, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case start := <-granted:
		return start, nil
	default:
		p.waiting.Remove(place)
		return time.Time{}, reason
	}
}

// Release frees a worker whose service was due to end at `end`. Timers fire late, by a millisecond
// or more on a busy machine. The next request in the queue therefore starts at `end`, not now, so
// that the pool's capacity is exactly workers / mean service time.
func (p *Pool) Release(end time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.account(now)
	if first := p.waiting.Front(); first != nil && p.busy <= p.workers {
		p.waiting.Remove(first).(chan time.Time) <- end
		return
	}
	p.busy--
	idle := max(0, now.Sub(end)) // the worker has been idle since then
	p.busyTime -= idle
	p.busyEver -= idle
}

// Resize changes the number of workers. New workers take waiting requests at once. A worker that is
// removed finishes the request that it serves.
func (p *Pool) Resize(workers int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.account(now)
	p.workers = workers
	for p.busy < p.workers && p.waiting.Len() > 0 {
		p.busy++
		p.waiting.Remove(p.waiting.Front()).(chan time.Time) <- now
	}
}

// account adds the busy time of the workers, and their time, up to `now`.
func (p *Pool) account(now time.Time) {
	busy := time.Duration(p.busy) * now.Sub(p.since)
	p.busyTime += busy
	p.busyEver += busy
	p.workerTime += time.Duration(p.workers) * now.Sub(p.since)
	p.since = now
}

// BusyTime returns for how long all workers together have been busy since the pool was made.
func (p *Pool) BusyTime() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.account(time.Now())
	return p.busyEver
}

// Workers returns the number of workers.
func (p *Pool) Workers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.workers
}

// TakeUtilisation returns the busy share of the pool, 0..1, since the previous call.
func (p *Pool) TakeUtilisation() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.account(time.Now())
	if p.workerTime <= 0 {
		return 0
	}
	share := float64(p.busyTime) / float64(p.workerTime)
	p.busyTime, p.workerTime = 0, 0
	return min(1, max(0, share))
}

// Hold waits until `end`, the planned end of a service. It cannot be interrupted, because a
// cancelled request still uses its worker.
func Hold(end time.Time) { time.Sleep(time.Until(end)) }
