// Package table is the relay's domain in plain Go values: what one service's proxies in one cluster
// should do with each traffic class. It depends on neither NATS nor Envoy.
package table

import (
	"time"

	"spillway.dev/relay/internal/table/traffic"
)

// Route is the route of one class of a destination service.
type Route struct {
	Class traffic.Class
	Way
}

// Way is where requests may go. Weights are sorted by cluster and sum to names.ValueWeightTotal;
// local-first is one destination with all of it. Without weights the way is closed, and Without
// lists every cluster of the service.
type Way struct {
	Weights []Weighted
	Without []string // clusters of the service that requests must not reach, not even by failover; sorted
}

// Host is one destination service.
type Host struct {
	Service  string
	Routes   []Route // the most specific first; empty when the service's classes need not be distinguished
	Fallback Way     // for requests of no class: all to the service's nearest cluster
	Handling Handling
}

// Table is what the proxies of one service do.
type Table struct {
	Service string
	// Version and InputWindow are those of the ruleset that steers, or 0 and "" when the table is
	// local-first.
	Version     uint64
	InputWindow string
	Inbound     []traffic.Class // the service's own classes, the most specific first
	Hosts       []Host          // sorted by name
	// Adapted says which rules could not be followed exactly, and why.
	Adapted []string
}

// Build computes the table of one source service. Without rules, and once expired rules are no
// longer held, every class goes to the nearest cluster that has the service: local-first with
// failover. Expired rules that are held give way to that in steps. The classes of expired rules
// stay, because telemetry is named after them. Their denials stay too: requests that must not leave
// a place must not do so because a publisher is away.
//
// A destination that no rule says the service calls gets no classes, only the fallback. A proxy
// thus need not hold routes for the calls of others, nor receive them again with each change.
func Build(service string, network *Network, rules *Rules, now time.Time) Table {
	table := Table{Service: service}
	var classes []traffic.Class
	if rules != nil {
		classes = rules.classes
		if !rules.Released(now) {
			table.Version, table.InputWindow = rules.Version, rules.InputWindow
		}
	}
	denials, kept := rules.Denials(), rules.kept(service, now)
	byService := map[string][]traffic.Class{}
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
			taken, adapted := way(rule, tiers, denials.of(destination, class.Form()), kept)
			if adapted != "" {
				table.Adapted = append(table.Adapted, service+" to "+class.ID()+": "+adapted)
			}
			host.Routes = append(host.Routes, Route{Class: class, Way: taken})
		}
		table.Hosts = append(table.Hosts, host)
	}
	return table
}
