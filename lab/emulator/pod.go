package main

import (
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
	caller *Caller
	chance *Chance
	counts Counts
}

// Counts is what became of the requests so far. Every request is in exactly one of them.
type Counts struct {
	Served, QueueFull, QueueTimeout, Cancelled, CallFailed, Unknown atomic.Uint64
}

// NewPod puts a service's pool behind its identity.
func NewPod(config Config, service Service, caller *Caller, chance *Chance) *Pod {
	timeout := time.Duration(service.QueueTimeoutMs * float64(time.Millisecond))
	return &Pod{
		hop:    config.Service + "@" + config.Cluster,
		pool:   NewPool(service.Workers, service.Queue, timeout),
		caller: caller,
		chance: chance,
	}
}

// Handler serves the endpoints; anything else is 404 with a reason.
func (p *Pod) Handler(endpoints []Endpoint) (http.Handler, error) {
	mux := http.NewServeMux()
	for _, endpoint := range endpoints {
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, endpoint) })
		if err := register(mux, endpoint.Method+" "+muxPath(endpoint.Path), handler); err != nil {
			return nil, err
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" {
			p.counts.Unknown.Add(1)
			p.fail(w, http.StatusNotFound, "no_endpoint", nil)
			return
		}
		mux.ServeHTTP(w, r)
	}), nil
}

// serve is one request: wait for a worker, hold it for the service time, then make the calls
// without it, then answer.
func (p *Pod) serve(w http.ResponseWriter, r *http.Request, endpoint Endpoint) {
	// A client's abort is only noticed once its body has been read.
	_, _ = io.Copy(io.Discard, r.Body)
	start, err := p.pool.Acquire(r.Context())
	if err != nil {
		p.countRefusal(err)
		p.fail(w, http.StatusServiceUnavailable, err.Error(), nil)
		return
	}
	end := start.Add(p.chance.Draw(endpoint.ServiceTime))
	Hold(end)
	p.pool.Release(end)
	if r.Context().Err() != nil {
		p.counts.Cancelled.Add(1)
		p.fail(w, http.StatusServiceUnavailable, errCancelled.Error(), nil)
		return
	}
	paths, failed := p.caller.Run(r, endpoint.Calls)
	if failed != nil {
		p.counts.CallFailed.Add(1)
		p.fail(w, http.StatusBadGateway, failed.Error(), paths)
		return
	}
	p.counts.Served.Add(1)
	w.Header().Set(pathHeader, joinPath(p.hop, paths))
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(endpoint.ResponseBytes))
	_, _ = w.Write(filler(endpoint.ResponseBytes))
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

// fail answers with where the request got to and why it ended; a nested reason keeps its last,
// deepest part when it is too long for a header.
func (p *Pod) fail(w http.ResponseWriter, status int, reason string, paths []string) {
	const longest = 256
	if len(reason) > longest {
		reason = reason[len(reason)-longest:]
	}
	w.Header().Set(pathHeader, joinPath(p.hop, paths))
	w.Header().Set(reasonHeader, strings.TrimSpace(reason))
	w.WriteHeader(status)
}

// Snapshot is the counts as they are reported on the health listener.
func (p *Pod) Snapshot() map[string]uint64 {
	return map[string]uint64{
		"served":        p.counts.Served.Load(),
		"queue_full":    p.counts.QueueFull.Load(),
		"queue_timeout": p.counts.QueueTimeout.Load(),
		"cancelled":     p.counts.Cancelled.Load(),
		"call_failed":   p.counts.CallFailed.Load(),
		"no_endpoint":   p.counts.Unknown.Load(),
	}
}
