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

// Counts is the number of requests so far by outcome. Every request is in exactly one of them.
type Counts struct {
	Served, QueueFull, QueueTimeout, Cancelled, CallFailed, Unknown atomic.Uint64
}

// NewPod returns a pod of the service with the identity from the configuration.
func NewPod(config Config, service Service, caller *Caller, chance *Chance) *Pod {
	timeout := time.Duration(service.QueueTimeoutMs * float64(time.Millisecond))
	return &Pod{
		hop:    config.Service + "@" + config.Cluster,
		pool:   NewPool(service.Workers, service.Queue, timeout),
		caller: caller,
		chance: chance,
	}
}

// Handler serves the endpoints. Any other request is answered with 404 and a reason.
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

// serve handles one request: it waits for a worker, holds it for the service time, makes the calls
// without a worker, and then answers.
func (p *Pod) serve(w http.ResponseWriter, r *http.Request, endpoint Endpoint) {
	// The server notices a client's abort only once the body has been read.
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
		"served":        p.counts.Served.Load(),
		"queue_full":    p.counts.QueueFull.Load(),
		"queue_timeout": p.counts.QueueTimeout.Load(),
		"cancelled":     p.counts.Cancelled.Load(),
		"call_failed":   p.counts.CallFailed.Load(),
		"no_endpoint":   p.counts.Unknown.Load(),
	}
}
