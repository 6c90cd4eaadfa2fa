package main

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

var (
	servicePattern  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
	segmentPattern  = regexp.MustCompile(`^[A-Za-z0-9._~-]+$`)
	variablePattern = regexp.MustCompile(`^\{([A-Za-z_][A-Za-z0-9_]*)\}$`)
	methods         = []string{"DELETE", "GET", "PATCH", "POST", "PUT"}
)

type report struct{ problems []string }

func (r *report) add(format string, arguments ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, arguments...))
}

func (r *report) atLeast(key string, value, least float64) {
	if math.IsNaN(value) || math.IsInf(value, 0) || value < least {
		r.add("%s: %v; allowed: a number of at least %v", key, value, least)
	}
}

func (r *report) aboveZero(key string, value float64) {
	if math.IsNaN(value) || math.IsInf(value, 0) || value <= 0 {
		r.add("%s: %v; allowed: a number above 0", key, value)
	}
}

// problems returns everything that is wrong with the application, in a stable order.
func (a Application) problems() []string {
	var r report
	r.aboveZero("call_timeout_ms", a.CallTimeoutMs)
	if len(a.Services) == 0 {
		r.add("services: empty; allowed: at least one service")
	}
	muxes := map[string]*http.ServeMux{}
	names := slices.Sorted(maps.Keys(a.Services))
	for _, name := range names {
		muxes[name] = a.checkService(&r, name)
	}
	a.checkKeys(&r)
	graph := map[string][]string{}
	for _, name := range names {
		for i, endpoint := range a.Services[name].Endpoints {
			key := fmt.Sprintf("services.%s.endpoints[%d].calls", name, i)
			graph[endpointName(name, endpoint)] = checkCalls(&r, key, endpoint, muxes)
		}
	}
	// Cycles are reported only when the application has no other problem.
	if len(r.problems) == 0 {
		if cycle := findCycle(graph); cycle != nil {
			r.add("services: calls form a cycle: %s; allowed: a call tree", strings.Join(cycle, " -> "))
		}
	}
	return r.problems
}

func (a Application) checkService(r *report, name string) *http.ServeMux {
	service, key := a.Services[name], "services."+name
	if !servicePattern.MatchString(name) {
		r.add("%s: name %q; allowed: letters, digits, '.', '_', '-'", key, name)
	}
	r.atLeast(key+".workers", float64(service.Workers), 1)
	r.atLeast(key+".queue", float64(service.Queue), 0)
	r.aboveZero(key+".queue_timeout_ms", service.QueueTimeoutMs)
	if len(service.Endpoints) == 0 {
		r.add("%s.endpoints: empty; allowed: at least one endpoint", key)
	}
	mux := http.NewServeMux()
	for i, endpoint := range service.Endpoints {
		endpointKey := fmt.Sprintf("%s.endpoints[%d]", key, i)
		sound := checkMethod(r, endpointKey+".method", endpoint.Method)
		if _, ok := checkPath(r, endpointKey+".path", endpoint.Path); ok && sound {
			pattern := endpoint.Method + " " + muxPath(endpoint.Path)
			if err := register(mux, pattern, http.NotFoundHandler()); err != nil {
				r.add("%s.path: %q conflicts with another endpoint: %v", endpointKey, endpoint.Path, err)
			}
		}
		checkServiceTime(r, endpointKey+".service_time", endpoint.ServiceTime)
		r.atLeast(endpointKey+".response_bytes", float64(endpoint.ResponseBytes), 0)
		checkBehaviour(r, endpointKey, service, i)
	}
	return mux
}

func checkMethod(r *report, key, method string) bool {
	if slices.Contains(methods, method) {
		return true
	}
	r.add("%s: %q; allowed: %s", key, method, strings.Join(methods, ", "))
	return false
}

// checkPath accepts RFC 6570 level 1 templates in which a variable is a whole segment. It returns
// the names of the variables.
func checkPath(r *report, key, path string) (variables []string, ok bool) {
	if !strings.HasPrefix(path, "/") {
		r.add("%s: %q; allowed: a path that starts with '/'", key, path)
		return nil, false
	}
	if path == "/" {
		return nil, true
	}
	for segment := range strings.SplitSeq(path[1:], "/") {
		if match := variablePattern.FindStringSubmatch(segment); match != nil {
			if slices.Contains(variables, match[1]) {
				r.add("%s: %q has the variable %q twice; allowed: distinct names", key, path, match[1])
				return nil, false
			}
			variables = append(variables, match[1])
		} else if !segmentPattern.MatchString(segment) || segment == "." || segment == ".." {
			r.add("%s: segment %q of %q; allowed: letters, digits, '.', '_', '~', '-', or {variable}",
				key, segment, path)
			return nil, false
		}
	}
	return variables, true
}

func checkServiceTime(r *report, key string, s ServiceTime) {
	if !slices.Contains(distributions, s.Distribution) {
		r.add("%s.distribution: %q; allowed: %s", key, s.Distribution, strings.Join(distributions, ", "))
	}
	r.aboveZero(key+".mean_ms", s.MeanMs)
	if s.Distribution == lognormal {
		r.aboveZero(key+".cv", s.CV)
	} else if s.CV != 0 {
		r.add("%s.cv: %v; allowed: only with distribution %s", key, s.CV, lognormal)
	}
}

// checkCalls checks the calls of one endpoint and returns the names of the endpoints that they
// reach.
func checkCalls(r *report, key string, from Endpoint, muxes map[string]*http.ServeMux) []string {
	var ignored report
	callers, _ := checkPath(&ignored, key, from.Path)
	var reached []string
	for i, stage := range from.Calls {
		if len(stage) == 0 {
			r.add("%s[%d]: empty; allowed: at least one call", key, i)
		}
		for j, call := range stage {
			callKey := fmt.Sprintf("%s[%d][%d]", key, i, j)
			checkHowOften(r, callKey, call)
			r.atLeast(callKey+".request_bytes", float64(call.RequestBytes), 0)
			mux, known := muxes[call.Service]
			if !known {
				r.add("%s.service: unknown service %q; allowed: %s",
					callKey, call.Service, strings.Join(slices.Sorted(maps.Keys(muxes)), ", "))
				continue
			}
			if !checkMethod(r, callKey+".method", call.Method) {
				continue
			}
			variables, ok := checkPath(r, callKey+".path", call.Path)
			if !ok {
				continue
			}
			for _, variable := range variables {
				if !slices.Contains(callers, variable) {
					r.add("%s.path: variable {%s}; allowed: variables of the caller's path %q",
						callKey, variable, from.Path)
				}
			}
			if target := matchPattern(mux, call.Method, call.Path); target != "" {
				reached = append(reached, call.Service+" "+target)
			} else {
				r.add("%s: service %q has no endpoint for %s %s", callKey, call.Service, call.Method, call.Path)
			}
		}
	}
	return reached
}

func checkHowOften(r *report, key string, call Call) {
	if call.Probability != nil && call.Count != nil {
		r.add("%s: both probability and count; allowed: one of them", key)
	}
	if p := call.Probability; p != nil && !(*p > 0 && *p <= 1) {
		r.add("%s.probability: %v; allowed: above 0, at most 1", key, *p)
	}
	if n := call.Count; n != nil && (*n < 1 || *n > 1000) {
		r.add("%s.count: %d; allowed: 1 to 1000", key, *n)
	}
}

// matchPattern returns the endpoint ("METHOD /path/{template}") that a call reaches, or "" when
// there is none. It uses the same matcher as the server.
func matchPattern(mux *http.ServeMux, method, path string) string {
	request, err := http.NewRequest(method, "http://service"+variableInPath.ReplaceAllString(path, "x"), nil)
	if err != nil {
		return ""
	}
	_, pattern := mux.Handler(request)
	return strings.TrimSuffix(pattern, "{$}")
}

// findCycle returns the endpoints of one cycle, in which the first equals the last, or nil. It is a
// depth-first search with three colours.
func findCycle(graph map[string][]string) []string {
	done, onPath := map[string]bool{}, map[string]bool{}
	var path []string
	var visit func(string) []string
	visit = func(node string) []string {
		path, onPath[node] = append(path, node), true
		for _, next := range graph[node] {
			if onPath[next] {
				return append(slices.Clone(path[slices.Index(path, next):]), next)
			}
			if !done[next] {
				if cycle := visit(next); cycle != nil {
					return cycle
				}
			}
		}
		path, onPath[node], done[node] = path[:len(path)-1], false, true
		return nil
	}
	for _, node := range slices.Sorted(maps.Keys(graph)) {
		if !done[node] {
			if cycle := visit(node); cycle != nil {
				return cycle
			}
		}
	}
	return nil
}
