package table

import "time"

// Route is what one class of a destination service gets.
type Route struct {
	Class Class
	Way
}

// Way is where requests may go. Weights are in order of cluster and sum to names.ValueWeightTotal;
// local-first is one destination with all of it. None: closed, Without has every cluster of the service.
type Way struct {
	Weights []Weighted
	Without []string // clusters of the service that they must not reach, not by failover either; sorted
}

// Host is one destination service.
type Host struct {
	Service  string
	Routes   []Route // most specific first; none when no rule says that the service calls this one
	Fallback Way     // of requests of no class: all to the service's nearest
	Handling Handling
}

// Table is what the proxies of one service do.
type Table struct {
	Service string
	// Version and InputWindow of the ruleset that steers; 0 and "" when it is local-first.
	Version     uint64
	InputWindow string
	Inbound     []Class // the service's own classes, most specific first
	Hosts       []Host  // by name
	// Adapted says which rules could not be followed to the letter, and why.
	Adapted []string
}

// Build makes the table of one source service. Without rules, or when expired ones are no longer held,
// every class goes to the nearest cluster that has the service: local-first with failover. Rules that
// have expired and are held give way to that in steps. The classes of expired rules stay, since telemetry is named after them, and so do their denials: what must not
// leave a place must not do so because a publisher is away.
//
// A destination that no rule has the service call gets no classes, only the fallback: a proxy need not
// hold, and be sent again with each change, what concerns the calls of others.
func Build(service string, network *Network, rules *Rules, now time.Time) Table {
	table := Table{Service: service}
	var classes []Class
	if rules != nil {
		classes = rules.classes
		if !rules.Released(now) {
			table.Version, table.InputWindow = rules.Version, rules.InputWindow
		}
	}
	denials, kept := rules.Denials(), rules.kept(service, now)
	byService := map[string][]Class{}
	for _, class := range classes { // keeps their order
		byService[class.Service] = append(byService[class.Service], class)
	}
	table.Inbound = byService[service]
	for _, destination := range network.Services() {
		tiers := network.Tiers(destination)
		host := Host{Service: destination, Handling: network.Handling(destination)}
		host.Fallback, _ = way(nil, tiers, denials.of(destination, ""), kept)
		if !rules.classed(service, destination) {
			table.Hosts = append(table.Hosts, host)
			continue
		}
		for _, class := range byService[destination] {
			var rule []Weighted
			if table.Version != 0 {
				rule = rules.weights[ruleKey{service, class.ID()}]
			}
			taken, adapted := way(rule, tiers, denials.of(destination, class.form()), kept)
			if adapted != "" {
				table.Adapted = append(table.Adapted, service+" to "+class.ID()+": "+adapted)
			}
			host.Routes = append(host.Routes, Route{Class: class, Way: taken})
		}
		table.Hosts = append(table.Hosts, host)
	}
	return table
}
