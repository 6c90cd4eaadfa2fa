package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"spillway.dev/contracts/names"
)

// propagated lists the headers that carry the trace unchanged from the inbound request to the calls
// (W3C, B3).
var propagated = []string{
	names.HttpHeaderTraceparent, names.HttpHeaderTracestate, "b3",
	"x-b3-traceid", "x-b3-spanid", "x-b3-parentspanid", "x-b3-sampled", "x-b3-flags",
}

// Caller makes a request's calls through the sidecar's outbound listener.
type Caller struct {
	outbound string
	timeout  time.Duration
	client   *http.Client
	chance   *Chance
}

// NewCaller returns a Caller that keeps enough idle connections to the sidecar, so that calls under
// load never wait for a handshake.
func NewCaller(outbound string, timeout time.Duration, chance *Chance) *Caller {
	transport := &http.Transport{
		Proxy:               nil,
		DialContext:         (&net.Dialer{Timeout: timeout}).DialContext,
		MaxIdleConnsPerHost: 1024,
		IdleConnTimeout:     30 * time.Second,
		DisableCompression:  true,
	}
	return &Caller{outbound: outbound, timeout: timeout, chance: chance, client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// callResult is the result of one call: the path of the hops below it, and why it failed, if it
// did.
type callResult struct {
	path   string
	failed error
}

// Run makes the stages one after the other, and the calls of each stage in parallel. It returns the
// paths of all calls made, and the failure that stops the request. The other calls of the failing
// stage are waited for.
func (c *Caller) Run(inbound *http.Request, stages []Stage) (paths []string, failed error) {
	for _, stage := range stages {
		calls := c.choose(stage)
		results := make([]callResult, len(calls))
		var group sync.WaitGroup
		for i, call := range calls {
			group.Go(func() { results[i] = c.call(inbound, call) })
		}
		group.Wait()
		for i, result := range results {
			paths = append(paths, result.path)
			if result.failed != nil && !calls[i].Optional && failed == nil {
				failed = result.failed
			}
		}
		if failed != nil {
			return paths, failed
		}
	}
	return paths, nil
}

// choose draws which of a stage's calls this request makes, and repeats those with a count.
func (c *Caller) choose(stage Stage) []Call {
	var chosen []Call
	for _, call := range stage {
		times := 1
		if call.Count != nil {
			times = *call.Count
		} else if call.Probability != nil && !c.chance.Happens(*call.Probability) {
			times = 0
		}
		for range times {
			chosen = append(chosen, call)
		}
	}
	return chosen
}

func (c *Caller) call(inbound *http.Request, call Call) callResult {
	// The call does not depend on the inbound request's cancellation. As in the callee, what was
	// begun is finished, and only the timeout limits it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(inbound.Context()), c.timeout)
	defer cancel()
	var body io.Reader
	if call.RequestBytes > 0 {
		body = bytes.NewReader(filler(call.RequestBytes))
	}
	target := "http://" + c.outbound + expandPath(call.Path, inbound.PathValue)
	request, err := http.NewRequestWithContext(ctx, call.Method, target, body)
	if err != nil {
		return callResult{failed: fmt.Errorf("%s: bad request: %w", call.Service, err)}
	}
	request.Host = call.Service
	for _, header := range propagated {
		if values := inbound.Header.Values(header); len(values) > 0 {
			request.Header[http.CanonicalHeaderKey(header)] = values
		}
	}
	response, err := c.client.Do(request)
	if err != nil {
		return callResult{failed: fmt.Errorf("%s: %s", call.Service, transportReason(err))}
	}
	defer response.Body.Close()
	result := callResult{path: response.Header.Get(pathHeader)}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		result.failed = fmt.Errorf("%s: %s", call.Service, transportReason(err))
	} else if response.StatusCode >= http.StatusInternalServerError {
		result.failed = fmt.Errorf("%s: %d %s", call.Service, response.StatusCode, response.Header.Get(reasonHeader))
	}
	return result
}

// transportReason returns a short reason without addresses, so that reasons can be counted.
func transportReason(err error) string {
	var timeout net.Error
	var operation *net.OpError
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return "call_timeout"
	case errors.As(err, &operation):
		return "transport_" + operation.Op
	default:
		return "transport"
	}
}

// filler returns a body of n bytes. It is a slice of one shared block when the block is large
// enough.
func filler(n int) []byte {
	if n <= len(block) {
		return block[:n]
	}
	return bytes.Repeat([]byte{'x'}, n)
}

var block = []byte(strings.Repeat("x", 1<<16))
