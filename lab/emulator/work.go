package main

import (
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Work is what a pod keeps of one endpoint: its cache, and the rates of the endpoints that slow it.
type Work struct {
	endpoint Endpoint
	cache    *lru.Cache[string, struct{}] // nil: none. It is safe for concurrent use.
	rivals   []rival
	watchers []*Rate // rates of this endpoint that others keep
}

// rival is an endpoint that makes another one slower.
type rival struct {
	rate       *Rate
	doublesRps float64
}

// NewWorks returns the work of a service's endpoints, in their order.
func NewWorks(endpoints []Endpoint) []*Work {
	works := make([]*Work, len(endpoints))
	for i, endpoint := range endpoints {
		works[i] = &Work{endpoint: endpoint}
		if endpoint.Cache != nil {
			works[i].cache, _ = lru.New[string, struct{}](endpoint.Cache.Capacity) // fails only below 1
		}
	}
	for _, slowed := range works {
		for _, contention := range slowed.endpoint.Contention {
			other := slices.IndexFunc(works, func(work *Work) bool {
				return work.endpoint.Method == contention.Method && work.endpoint.Path == contention.Path
			})
			rate := NewRate(contention.window())
			slowed.rivals = append(slowed.rivals, rival{rate, contention.DoublesAtRps})
			works[other].watchers = append(works[other].watchers, rate)
		}
	}
	return works
}

// Knows returns whether the cache has the key, which thereby becomes the last one to be evicted.
func (w *Work) Knows(key string) bool {
	_, known := w.cache.Get(key)
	return known
}

// Remember puts a key into the cache, if there is one. The key that was not used for the longest
// time leaves a full cache.
func (w *Work) Remember(key string) {
	if w.cache != nil {
		w.cache.Add(key, struct{}{})
	}
}

// Draw counts a request that begins, and returns the time for which it holds its worker at the
// given speed of the pod.
func (w *Work) Draw(chance *Chance, hit bool, speed float64) time.Duration {
	for _, rate := range w.watchers {
		rate.Add()
	}
	serviceTime := w.endpoint.ServiceTime
	if hit {
		if w.endpoint.Cache.Hit == nil {
			return 0
		}
		serviceTime = *w.endpoint.Cache.Hit
	}
	serviceTime.MeanMs *= w.slowdown() / speed
	return chance.Draw(serviceTime)
}

// slowdown returns the factor by which the rivals stretch the service time, at least 1.
func (w *Work) slowdown() float64 {
	factor := 1.0
	for _, rival := range w.rivals {
		factor += rival.rate.Rps() / rival.doublesRps
	}
	return factor
}
