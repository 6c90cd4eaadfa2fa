package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Pod is one instance of one service: a worker pool and the endpoints that use it.
type Pod struct {
	hop    string // "service@cluster"
	pool   *Pool
	state  *Switchboard
	caller *Caller
	chance *Chance
	counts Counts
}

// Counts is the number of requests so far by outcome. Every request is in exactly one of them. Hits
// and Misses are no outcomes: they count what caches were asked for.
type Counts struct {
	Served, QueueFull, QueueTimeout, Cancelled, CallFailed, Injected, Unavailable, Unknown atomic.Uint64
	Hits, Misses                                                                           atomic.Uint64
}

// NewPod returns a pod of the service with the identity from the configuration.
func NewPod(config Config, service Service, caller *Caller, chance *Chance) *Pod {
	timeout := time.Duration(service.QueueTimeoutMs * float64(time.Millisecond))
	pool := NewPool(service.Workers, service.Queue, timeout)
	return &Pod{
		hop:    config.Service + "@" + config.Cluster,
		pool:   pool,
		state:  NewSwitchboard(InitialState(service.Workers), func(state State) { pool.Resize(state.Workers) }),
		caller: caller,
		chance: chance,
	}
}

// Handler serves the endpoints. Any other request is answered with 404 and a reason.
func (p *Pod) Handler(endpoints []Endpoint) (http.Handler, error) {
	mux := http.NewServeMux()
	for _, work := range NewWorks(endpoints) {
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, work) })
		if err := register(mux, work.endpoint.Method+" "+muxPath(work.endpoint.Path), handler); err != nil {
			return nil, err
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		state := p.state.State()
		if !state.Available {
			p.counts.Unavailable.Add(1)
			p.fail(w, http.StatusServiceUnavailable, "unavailable", nil)
			return
		}
		// A delay before the queue changes when a request arrives there, and nothing else.
		if state.DelayShare == 1 || p.chance.Happens(state.DelayShare) {
			pause(r.Context(), milliseconds(state.DelayMs))
		}
		if _, pattern := mux.Handler(r); pattern == "" {
			p.counts.Unknown.Add(1)
			p.fail(w, http.StatusNotFound, "no_endpoint", nil)
			return
		}
		mux.ServeHTTP(w, r)
	}), nil
}

// serve handles one request: it waits for a worker, holds it for the service time, makes the calls
// without a worker, and then answers. A cached key makes no calls.
func (p *Pod) serve(w http.ResponseWriter, r *http.Request, work *Work) {
	// The server notices a client's abort only once the body has been read.
	_, _ = io.Copy(io.Discard, r.Body)
	start, err := p.pool.Acquire(r.Context())
	if err != nil {
		p.countRefusal(err)
		p.fail(w, http.StatusServiceUnavailable, err.Error(), nil)
		return
	}
	state := p.state.State()
	key, hit := p.lookUp(work, r)
	end := start.Add(work.Draw(p.chance, hit, state.Speed))
	Hold(end)
	p.pool.Release(end)
	if r.Context().Err() != nil {
		p.counts.Cancelled.Add(1)
		p.fail(w, http.StatusServiceUnavailable, errCancelled.Error(), nil)
		return
	}
	if p.chance.Happens(work.endpoint.ErrorRate) || p.chance.Happens(state.ErrorRate) {
		p.counts.Injected.Add(1)
		p.fail(w, http.StatusInternalServerError, "injected_error", nil)
		return
	}
	var paths []string
	if !hit {
		var failed error
		if paths, failed = p.caller.Run(r, work.endpoint.Calls); failed != nil {
			p.counts.CallFailed.Add(1)
			p.fail(w, http.StatusBadGateway, failed.Error(), paths)
			return
		}
		work.Remember(key)
	}
	p.counts.Served.Add(1)
	w.Header().Set(pathHeader, joinPath(p.hop, paths))
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(work.endpoint.ResponseBytes))
	_, _ = w.Write(filler(work.endpoint.ResponseBytes))
}

// lookUp returns the request's key, and whether the endpoint's cache has it.
func (p *Pod) lookUp(work *Work, r *http.Request) (key string, hit bool) {
	if work.cache == nil {
		return "", false
	}
	key = r.PathValue(work.endpoint.Cache.Key)
	if hit = work.Knows(key); hit {
		p.counts.Hits.Add(1)
	} else {
		p.counts.Misses.Add(1)
	}
	return key, hit
}

// pause waits, or returns when the client goes away.
func pause(ctx context.Context, length time.Duration) {
	if length <= 0 {
		return
	}
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (p *Pod) countRefusal(err error) {
	switch {
	case errors.Is(err, errQueueFull):
		p.counts.QueueFull.Add(1)
	case errors.Is(err, errQueueTimeout):
		p.counts.QueueTimeout.Add(1)
	default:
		p.counts.Cancelled.Add(1)
	}
}

// fail answers with the path that the request took and the reason why it ended. A nested reason
// that is too long for a header keeps its last, deepest part.
func (p *Pod) fail(w http.ResponseWriter, status int, reason string, paths []string) {
	const longest = 256
	if len(reason) > longest {
		reason = reason[len(reason)-longest:]
	}
	w.Header().Set(pathHeader, joinPath(p.hop, paths))
	w.Header().Set(reasonHeader, strings.TrimSpace(reason))
	w.WriteHeader(status)
}

// Snapshot returns the counts as the health listener reports them.
func (p *Pod) Snapshot() map[string]uint64 {
	return map[string]uint64{
		"served":         p.counts.Served.Load(),
		"queue_full":     p.counts.QueueFull.Load(),
		"queue_timeout":  p.counts.QueueTimeout.Load(),
		"cancelled":      p.counts.Cancelled.Load(),
		"call_failed":    p.counts.CallFailed.Load(),
		"injected_error": p.counts.Injected.Load(),
		"unavailable":    p.counts.Unavailable.Load(),
		"no_endpoint":    p.counts.Unknown.Load(),
		"cache_hits":     p.counts.Hits.Load(),
		"cache_misses":   p.counts.Misses.Load(),
	}
}
