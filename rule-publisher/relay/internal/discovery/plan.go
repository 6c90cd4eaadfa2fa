package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/discovery/dns"
	"spillway.dev/relay/internal/discovery/kubernetes"
	"spillway.dev/relay/internal/source"
	"spillway.dev/relay/internal/table"
)

// Source finds endpoints of some places.
type Source interface {
	// Run until the context ends. `found` is called with everything that the source knows, first when
	// it knows something for sure and then after each change. While whom it asks does not answer, it
	// says nothing: what it found last stays in force.
	Run(ctx context.Context, found func(table.Found))
}

// planned is a source as the files want it. Two with equal fingerprints do the same.
type planned struct {
	fingerprint string
	source      Source
}

// plan makes the sources that the endpoints file names, by a key that stays the same over its
// versions. The error lists every key that is wrong, in the files' own terms.
func plan(cluster string, inputs source.Inputs, counters *count.Counters, log *slog.Logger) (map[string]planned, error) {
	_, err := table.NewNetwork(cluster, inputs.Topology, inputs.Endpoints, nil)
	problems := []error{err}
	sources := map[string]planned{}
	for i, entry := range inputs.Endpoints.GetKubernetes() {
		found, err := kubernetes.New(entry, counters, log)
		if err != nil {
			for _, problem := range each(err) {
				problems = append(problems, fmt.Errorf("endpoints kubernetes[%d].%w", i, problem))
			}
			continue
		}
		sources["kubernetes of "+entry.GetCluster()] = planned{fingerprint(entry), found}
	}
	settings := inputs.Endpoints.GetDns()
	resolver := dns.NewResolver(settings.GetServer())
	for _, entry := range inputs.Endpoints.GetServices() {
		if len(entry.GetNames()) == 0 {
			continue
		}
		names := &dns.Source{Place: table.Place{Service: entry.GetService(), Cluster: entry.GetCluster()}, Resolver: resolver,
			Refresh: time.Duration(settings.GetRefreshSeconds()) * time.Second, Counters: counters, Log: log}
		for _, text := range entry.GetNames() {
			name, _ := table.ParseName(text) // NewNetwork has told what is wrong
			names.Names = append(names.Names, name)
		}
		sources[namesKey(names.Place)] = planned{fingerprint(
			&spillwayv1.ServiceEndpoints{Names: entry.GetNames()}, settings), names}
	}
	return sources, errors.Join(problems...)
}

// each of the errors that were joined.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

func namesKey(place table.Place) string { return "names of " + place.Service + " in " + place.Cluster }

func fingerprint(messages ...proto.Message) (out string) {
	for _, message := range messages {
		encoded, _ := proto.MarshalOptions{Deterministic: true}.Marshal(message) // of strings and numbers: cannot fail
		out += fmt.Sprintf("%d %s ", len(encoded), encoded)
	}
	return out
}
