// Package discovery joins everything that tells where endpoints are (files, names, Kubernetes) into
// one network, and says when it changes.
package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/source"
	"spillway.dev/relay/internal/state"
	"spillway.dev/relay/internal/table"
)

const (
	filesEvery   = 2 * time.Second
	firstAnswers = 3 * time.Second // how long a start waits for sources that have nothing kept
	// Changes are gathered for this long, and told at most this often: every one goes to every Envoy.
	gather = 20 * time.Millisecond
	calm   = time.Second
	// A service that lost its last endpoint somewhere, or got its first, does not wait as long.
	urgent  = 250 * time.Millisecond
	saveFor = 200 * time.Millisecond // at the end, on a disk that stalls
)

// Store keeps what sources found over restarts.
type Store interface {
	SaveFound([]byte) error
	LoadFound() ([]byte, error)
}

// Directory of endpoints as seen from one cluster.
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
	unreadable bool // the files, as last logged
	saves      state.Later[[]byte]
}

// running is a source at work.
type running struct {
	fingerprint string
	stop        context.CancelFunc
	found       table.Found
	answered    bool
}

type event struct {
	from  *running
	found table.Found
}

// Open reads the files, starts their sources, which end with the context, and gives each that has
// nothing kept from before a moment for its first answer. The error lists every wrong key.
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

func (d *Directory) wrong(err error) error {
	return fmt.Errorf("%s, %s:\n%w", d.Files.Topology, d.Files.Endpoints, err)
}

// apply starts new and changed sources and ends those that are gone. A changed one starts from what
// its predecessor found, a new one from what was kept.
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
}

func (d *Directory) start(ctx context.Context, next planned, found table.Found) *running {
	alive, stop := context.WithCancel(ctx)
	r := &running{fingerprint: next.fingerprint, stop: stop, found: found}
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

// awaitFirst returns when every source has found something, now or before the restart, or time is up.
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

// take notes what a source found; `places` is true when a place came or went whole.
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
	tell := func(gap time.Duration) {
		when := last.Add(gap)
		if soonest := time.Now().Add(gather); when.Before(soonest) {
			when = soonest
		}
		if due == nil || when.Before(at) {
			at, due = when, time.After(time.Until(when))
		}
	}
	tell(0) // what came between Open and now
	for {
		select {
		case <-ctx.Done():
			d.ended.Wait()
			d.saves.Wait(saveFor)
			return
		case e := <-d.events:
			if d.take(e) {
				tell(urgent)
			} else {
				tell(calm)
			}
		case <-files.C:
			if d.reload(ctx) {
				tell(0)
			}
		case <-due:
			due, last = nil, time.Now()
			d.tell(changed)
		}
	}
}

// reload takes a good new version of the files. A bad one is logged and counted once, and the old one
// stays.
func (d *Directory) reload(ctx context.Context) bool {
	same, err := d.Files.Unchanged()
	if err == nil && same {
		d.unreadable = false
		return false
	}
	if err != nil && d.unreadable { // said already
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

// tell builds the network, and passes it on when it differs from the last.
func (d *Directory) tell(changed func(*table.Network)) {
	network, err := d.build()
	if err != nil { // the inputs were checked
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

// build joins what is declared with what is found. A declared place is not looked for in Kubernetes.
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
