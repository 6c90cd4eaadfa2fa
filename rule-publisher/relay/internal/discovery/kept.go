package discovery

import (
	"encoding/json"

	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/table"
)

// keptPlace is one place of one source as it is stored on disk.
type keptPlace struct {
	Source    string           `json:"source"`
	Place     table.Place      `json:"place"`
	Endpoints []table.Endpoint `json:"endpoints"`
}

// keep stores what sources found, for a restart during which they do not answer. It does not wait
// for the disk.
func (d *Directory) keep() {
	var all []keptPlace
	for key, r := range d.sources {
		for place, endpoints := range r.found {
			all = append(all, keptPlace{key, place, endpoints})
		}
	}
	if len(d.sources) == 0 {
		return
	}
	payload, err := json.Marshal(all)
	if err != nil {
		d.notKept(err)
		return
	}
	if d.saves.Write == nil {
		d.saves.Write = d.save
	}
	d.saves.Put(payload)
}

func (d *Directory) save(payload []byte) {
	if err := d.Store.SaveFound(payload); err != nil {
		d.notKept(err)
	}
}

func (d *Directory) notKept(err error) {
	d.Counters.Add(count.StateErrors)
	d.Log.Error("endpoints that were found cannot be kept over a restart", "error", err)
}

// kept returns the stored endpoints by source, or nil when they cannot be used.
func (d *Directory) kept() map[string]table.Found {
	payload, err := d.Store.LoadFound()
	var all []keptPlace
	if err == nil && payload != nil {
		err = json.Unmarshal(payload, &all)
	}
	if err != nil {
		d.Counters.Add(count.StateErrors)
		d.Log.Error("the endpoints kept on disk cannot be used", "error", err)
		return nil
	}
	bySource := map[string]table.Found{}
	for _, k := range all {
		if bySource[k.Source] == nil {
			bySource[k.Source] = table.Found{}
		}
		bySource[k.Source][k.Place] = k.Endpoints
	}
	return bySource
}
