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

// Source finds the endpoints of some places.
type Source interface {
	// Run works until the context ends. It calls `found` with everything that the source knows:
	// first when it has a reliable answer, then after each change. While its server does not
	// answer, it does not call `found`, and the endpoints found last stay in force.
	Run(ctx context.Context, found func(table.Found))
}

// planned is a source that the files ask for. Two with equal fingerprints do the same.
type planned struct {
	fingerprint string
	source      Source
}

// plan creates the sources that the endpoints file asks for, by a key that stays the same across
// versions of the file. The error lists every wrong key, in the files' own terms.
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
		sources[kubernetesKey(entry.GetCluster())] = planned{fingerprint(entry), found}
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
			name, _ := table.ParseName(text) // NewNetwork has already reported invalid names
			names.Names = append(names.Names, name)
		}
		sources[namesKey(names.Place)] = planned{fingerprint(
			&spillwayv1.ServiceEndpoints{Names: entry.GetNames()}, settings), names}
	}
	return sources, errors.Join(problems...)
}

// each returns the errors that were joined into one.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

func kubernetesKey(cluster string) string { return "kubernetes of " + cluster }

func namesKey(place table.Place) string { return "names of " + place.Service + " in " + place.Cluster }

// fingerprint returns a string that is equal for equal messages. Lengths keep adjacent messages
// apart.
func fingerprint(messages ...proto.Message) (out string) {
	for _, message := range messages {
		encoded, _ := proto.MarshalOptions{Deterministic: true}.Marshal(message) // strings and numbers only: cannot fail
		out += fmt.Sprintf("%d %s ", len(encoded), encoded)
	}
	return out
}
