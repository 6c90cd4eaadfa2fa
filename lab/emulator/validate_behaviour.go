package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	uniform  = "uniform"
	zipf     = "zipf"
	mostKeys = 1_000_000
	lastKey  = 1_000_000_000
)

var popularities = []string{uniform, zipf}

// number formats a value as the lab's Python does.
func number(value float64) string { return strconv.FormatFloat(value, 'g', 15, 64) }

func (r *report) within(key string, value, low, high float64) {
	if allowed := value >= low && value <= high; !allowed { // NaN is not
		r.add("%s: %s; allowed: %.0f to %.0f", key, number(value), low, high)
	}
}

// checkBehaviour checks what an endpoint does beside its service time. The words are those of
// spillway_lab/scenario/behaviour.py; lab/tests/data/application_mistakes.yaml compares both.
func checkBehaviour(r *report, key string, service Service, index int) {
	endpoint := service.Endpoints[index]
	r.within(key+".error_rate", endpoint.ErrorRate, 0, 1)
	if cache := endpoint.Cache; cache != nil {
		if !slices.Contains(pathVariables(endpoint.Path), cache.Key) {
			r.add("%s.cache.key: %q; allowed: a variable of the path %q", key, cache.Key, endpoint.Path)
		}
		r.within(key+".cache.capacity", float64(cache.Capacity), 1, mostKeys)
		if cache.Hit != nil {
			checkServiceTime(r, key+".cache.hit", *cache.Hit)
		}
	}
	var others, listed []string
	for i, other := range service.Endpoints {
		if i != index {
			others = append(others, other.Method+" "+other.Path)
		}
	}
	for i, contention := range endpoint.Contention {
		contentionKey, rival := fmt.Sprintf("%s.contention[%d]", key, i), contention.Method+" "+contention.Path
		switch {
		case !slices.Contains(others, rival):
			r.add("%s: %q; allowed: %s", contentionKey, rival, either(others, "none; the service has one endpoint"))
		case slices.Contains(listed, rival):
			r.add("%s: %q is listed twice; allowed: each once", contentionKey, rival)
		}
		listed = append(listed, rival)
		r.aboveZero(contentionKey+".doubles_at_rps", contention.DoublesAtRps)
		if contention.WindowMs != nil {
			r.aboveZero(contentionKey+".window_ms", *contention.WindowMs)
		}
	}
}

// checkKeys checks the keys that users ask for.
func (a Application) checkKeys(r *report) {
	var variables []string
	for _, service := range a.Services {
		for _, endpoint := range service.Endpoints {
			variables = append(variables, pathVariables(endpoint.Path)...)
		}
	}
	slices.Sort(variables)
	variables = slices.Compact(variables)
	for _, variable := range slices.Sorted(maps.Keys(a.Keys)) {
		keys, key := a.Keys[variable], "keys."+variable
		if !slices.Contains(variables, variable) {
			r.add("%s: no path has this variable; allowed: %s", key, either(variables, "none; no path has a variable"))
		}
		checkRange(r, key, keys.KeyRange)
		for _, cluster := range slices.Sorted(maps.Keys(keys.Clusters)) {
			checkRange(r, key+".clusters."+cluster, keys.Clusters[cluster])
		}
		checkPopularity(r, key+".popularity", keys)
	}
}

func checkRange(r *report, key string, keys KeyRange) {
	r.within(key+".first", float64(keys.First), 0, lastKey)
	r.within(key+".count", float64(keys.Count), 1, mostKeys)
}

func checkPopularity(r *report, key string, keys Keys) {
	distribution, exponent := keys.Popularity.Distribution, keys.Popularity.Exponent
	if distribution == "" {
		distribution = uniform
	}
	switch {
	case !slices.Contains(popularities, distribution):
		r.add("%s.distribution: %q; allowed: %s", key, distribution, strings.Join(popularities, ", "))
	case distribution != zipf && exponent != nil:
		r.add("%s.exponent: %s; allowed: only with distribution zipf", key, number(*exponent))
	case distribution == zipf && exponent == nil:
		r.add("%s.exponent: not set; allowed: a number above 0", key)
	case distribution == zipf && (math.IsNaN(*exponent) || math.IsInf(*exponent, 0) || *exponent <= 0):
		r.add("%s.exponent: %s; allowed: a number above 0", key, number(*exponent))
	}
}

// pathVariables returns the names of a path template's variables, in order.
func pathVariables(path string) []string {
	var names []string
	for _, match := range variableInPath.FindAllStringSubmatch(path, -1) {
		names = append(names, match[1])
	}
	return names
}

func either(allowed []string, otherwise string) string {
	if len(allowed) == 0 {
		return otherwise
	}
	return strings.Join(allowed, ", ")
}
