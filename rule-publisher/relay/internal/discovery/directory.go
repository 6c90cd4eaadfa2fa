// Package discovery joins everything that knows where endpoints are (files, DNS names, Kubernetes)
// into one network, and reports when it changes.
package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/source"
	"spillway.dev/relay/internal/state"
	"spillway.dev/relay/internal/table"
)

const (
	filesEvery   = 2 * time.Second
	firstAnswers = 3 * time.Second // how long Open waits for sources without kept endpoints
	// Changes are gathered for `gather`, and passed on at most once per `calm`, because each one
	// goes to every Envoy.
	gather = 20 * time.Millisecond
	calm   = time.Second
	// urgent replaces calm when a service gained its first endpoint in a cluster, or lost its last
	// one.
	urgent  = 250 * time.Millisecond
	saveFor = 200 * time.Millisecond // how long Run waits at its end for a slow disk
)

// Store keeps the endpoints that sources found across restarts.
type Store interface {
	SaveFound([]byte) error
	LoadFound() ([]byte, error)
}

// Directory knows the endpoints as seen from one cluster.
type Directory struct {
	Cluster  string
	Files    *source.Files
	Store    Store
	Counters *count.Counters
	Log      *slog.Logger

	inputs     source.Inputs
	sources    map[string]*running
	events     chan event
	ended      sync.WaitGroup
	network    *table.Network
	unreadable bool // whether the last logged state of the files was "unreadable"
	saves      state.Later[[]byte]
	own        atomic.Pointer[running] // the source that watches the relay's own cluster; nil: none
}

// readiness is what a source may also know: how many pods are ready.
type readiness interface {
	Readiness() map[string]table.Readiness
}

// Readiness returns how many pods each service has in the relay's own cluster, and how many of them
// are ready. It is nil while no source knows.
func (d *Directory) Readiness() map[string]table.Readiness {
	if own := d.own.Load(); own != nil {
		if source, ok := own.source.(readiness); ok {
			return source.Readiness()
		}
	}
	return nil
}

// running is a source that has been started.
type running struct {
	fingerprint string
	source      Source
	stop        context.CancelFunc
	found       table.Found
	answered    bool
}

type event struct {
	from  *running
	found table.Found
}

// Open reads the files and starts their sources, which end with the context. It waits up to three
// seconds for the first answer of each source that has no endpoints kept from before. The error
// lists every wrong key.
func (d *Directory) Open(ctx context.Context) (*table.Network, error) {
	inputs, err := d.Files.Load()
	if err != nil {
		return nil, err
	}
	sources, err := plan(d.Cluster, inputs, d.Counters, d.Log)
	if err != nil {
		return nil, d.wrong(err)
	}
	d.sources, d.events = map[string]*running{}, make(chan event)
	d.apply(ctx, inputs, sources, d.kept())
	d.awaitFirst(ctx)
	d.network, err = d.build()
	return d.network, err
}

// wrong adds the paths of both files to the error.
func (d *Directory) wrong(err error) error {
	return fmt.Errorf("%s, %s:\n%w", d.Files.Topology, d.Files.Endpoints, err)
}

// apply starts new and changed sources and stops those that are gone. A changed source starts with
// what its predecessor found, a new source with what was kept on disk.
func (d *Directory) apply(ctx context.Context, inputs source.Inputs, sources map[string]planned, kept map[string]table.Found) {
	d.inputs = inputs
	for key, old := range d.sources {
		if next, ok := sources[key]; !ok || next.fingerprint != old.fingerprint {
			old.stop()
		}
		if _, ok := sources[key]; !ok {
			delete(d.sources, key)
		}
	}
	for key, next := range sources {
		found := kept[key]
		if old := d.sources[key]; old != nil {
			if old.fingerprint == next.fingerprint {
				continue
			}
			found = old.found
		}
		d.sources[key] = d.start(ctx, next, found)
	}
	d.own.Store(d.sources[kubernetesKey(d.Cluster)])
}

func (d *Directory) start(ctx context.Context, next planned, found table.Found) *running {
	alive, stop := context.WithCancel(ctx)
	r := &running{fingerprint: next.fingerprint, source: next.source, stop: stop, found: found}
	d.ended.Go(func() {
		next.source.Run(alive, func(found table.Found) {
			select {
			case d.events <- event{r, found}:
			case <-alive.Done():
			}
		})
	})
	return r
}

// awaitFirst returns when every source has endpoints, found now or before the restart, or when the
// time is up.
func (d *Directory) awaitFirst(ctx context.Context) {
	timeout := time.NewTimer(firstAnswers)
	defer timeout.Stop()
	for {
		var without []string
		for _, key := range slices.Sorted(maps.Keys(d.sources)) {
			if r := d.sources[key]; !r.answered && r.found == nil {
				without = append(without, key)
			}
		}
		if len(without) == 0 {
			return
		}
		select {
		case e := <-d.events:
			d.take(e)
		case <-timeout.C:
			d.Log.Warn("starting without the endpoints of sources that have not answered", "sources", without)
			return
		case <-ctx.Done():
			return
		}
	}
}

// take records what a source found. `places` is true when a place gained its first endpoint or lost
// its last one.
func (d *Directory) take(e event) (places bool) {
	before := e.from.found
	e.from.found, e.from.answered = e.found, true
	for place := range before {
		places = places || len(e.found[place]) == 0
	}
	for place := range e.found {
		places = places || len(before[place]) == 0
	}
	return places
}

// Run follows files and sources until the context ends, and calls `changed` with each new network.
func (d *Directory) Run(ctx context.Context, changed func(*table.Network)) {
	files := time.NewTicker(filesEvery)
	defer files.Stop()
	var due <-chan time.Time
	var last, at time.Time
	schedule := func(gap time.Duration) {
		when := last.Add(gap)
		if soonest := time.Now().Add(gather); when.Before(soonest) {
			when = soonest
		}
		if due == nil || when.Before(at) {
			at, due = when, time.After(time.Until(when))
		}
	}
	schedule(0) // report what changed between Open and now
	for {
		select {
		case <-ctx.Done():
			d.ended.Wait()
			d.saves.Wait(saveFor)
			return
		case e := <-d.events:
			if d.take(e) {
				schedule(urgent)
			} else {
				schedule(calm)
			}
		case <-files.C:
			if d.reload(ctx) {
				schedule(0)
			}
		case <-due:
			due, last = nil, time.Now()
			d.report(changed)
		}
	}
}

// reload applies a valid new version of the files, and reports whether it did. An invalid version
// is logged and counted once, and the previous one stays in use.
func (d *Directory) reload(ctx context.Context) bool {
	same, err := d.Files.Unchanged()
	if err == nil && same {
		d.unreadable = false
		return false
	}
	if err != nil && d.unreadable { // already reported
		return false
	}
	d.unreadable = err != nil
	var inputs source.Inputs
	var sources map[string]planned
	if err == nil {
		inputs, err = d.Files.Load()
	}
	if err == nil {
		if sources, err = plan(d.Cluster, inputs, d.Counters, d.Log); err != nil {
			err = d.wrong(err)
		}
	}
	if err != nil {
		d.Counters.Add(count.FilesRefused)
		d.Log.Error("a new version of topology or endpoints is refused; the old one stays", "error", err)
		return false
	}
	d.apply(ctx, inputs, sources, nil)
	return true
}

// report builds the network, and passes it on when it differs from the previous one.
func (d *Directory) report(changed func(*table.Network)) {
	network, err := d.build()
	if err != nil { // cannot happen: the inputs were checked
		d.Log.Error("endpoints do not fit together; the old ones stay", "error", err)
		return
	}
	if reflect.DeepEqual(network, d.network) {
		return
	}
	d.network = network
	changed(network)
	d.keep()
}

// build joins declared endpoints with found ones. For a place that the file declares, only its own
// names add endpoints; those from Kubernetes are ignored.
func (d *Directory) build() (*table.Network, error) {
	declared := map[table.Place]string{}
	for _, entry := range d.inputs.Endpoints.GetServices() {
		place := table.Place{Service: entry.GetService(), Cluster: entry.GetCluster()}
		declared[place] = namesKey(place)
	}
	found := table.Found{}
	for key, r := range d.sources {
		for place, endpoints := range r.found {
			if by, ok := declared[place]; !ok || by == key {
				found[place] = endpoints
			}
		}
	}
	return table.NewNetwork(d.Cluster, d.inputs.Topology, d.inputs.Endpoints, found)
}
