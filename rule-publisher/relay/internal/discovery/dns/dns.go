// Package dns finds endpoints by resolving DNS names at a fixed interval.
package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/table"
)

const (
	defaultRefresh = 10 * time.Second
	lookupTime     = 5 * time.Second
	// maxAddresses bounds the addresses of one name. The addresses beyond it, in sorted order, are
	// dropped and counted.
	maxAddresses = 256
)

// Resolver is the part of net.Resolver that this package uses.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}

// NewResolver returns a resolver that asks the server at address:port, or uses the host's
// configuration when `server` is empty. Go's own resolver returns no TTL, so names are refreshed at
// a fixed interval.
func NewResolver(server string) Resolver {
	resolver := &net.Resolver{PreferGo: true}
	if server != "" {
		resolver.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, server)
		}
	}
	return resolver
}

// Source resolves the names of one place.
type Source struct {
	Place    table.Place
	Names    []table.Name
	Refresh  time.Duration // 0 means 10 s
	Resolver Resolver
	Counters *count.Counters
	Log      *slog.Logger
}

// state is what is known of one name.
type state struct {
	good    []netip.AddrPort
	failure string // of the last look-up, as logged
	tried   bool
}

// Run resolves the names until the context ends. A failed look-up leaves the last successful answer
// in force. Nothing is passed on before at least one name has an answer.
func (s *Source) Run(ctx context.Context, found func(table.Found)) {
	refresh := s.Refresh
	if refresh == 0 {
		refresh = defaultRefresh
	}
	states := make([]state, len(s.Names))
	var reported []table.Endpoint
	for {
		s.lookUpAll(ctx, states)
		if ctx.Err() != nil {
			return
		}
		if all := union(states); len(all) > 0 && !slices.Equal(all, reported) {
			reported = all
			found(table.Found{s.Place: all})
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(refresh):
		}
	}
}

// lookUpAll looks up all names concurrently.
func (s *Source) lookUpAll(ctx context.Context, states []state) {
	var asking sync.WaitGroup
	for i := range states {
		asking.Go(func() {
			addresses, err := s.lookUp(ctx, s.Names[i])
			if ctx.Err() == nil {
				s.take(&states[i], s.Names[i], addresses, err)
			}
		})
	}
	asking.Wait()
}

// take records the result of a look-up, counts a failure, and logs each change of state once.
func (s *Source) take(st *state, name table.Name, addresses []netip.AddrPort, err error) {
	log := s.Log.With("name", name.Text, "service", s.Place.Service, "in", s.Place.Cluster)
	first := !st.tried
	st.tried = true
	if err == nil {
		if st.failure != "" {
			log.Info("a name is looked up again")
		}
		st.good, st.failure = addresses, ""
		return
	}
	s.Counters.Add(count.NamesFailed)
	if first {
		s.Counters.Add(count.NamesNeverResolved)
	}
	if st.failure == "" {
		log.Warn("a name cannot be looked up; its last addresses stay", "addresses", len(st.good), "error", err)
	}
	st.failure = err.Error()
}

func union(states []state) []table.Endpoint {
	var all []table.Endpoint
	for _, st := range states {
		for _, address := range st.good {
			all = append(all, table.Endpoint{Address: address})
		}
	}
	slices.SortFunc(all, table.Endpoint.Compare)
	return slices.Compact(all)
}

func (s *Source) lookUp(ctx context.Context, name table.Name) ([]netip.AddrPort, error) {
	asking, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	var addresses []netip.AddrPort
	var err error
	if name.Port == 0 {
		addresses, err = s.lookUpService(asking, name.Host)
	} else {
		addresses, err = s.lookUpHost(asking, name.Host, name.Port)
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(addresses, netip.AddrPort.Compare)
	addresses = slices.Compact(addresses)
	if len(addresses) > maxAddresses {
		s.Counters.AddN(count.EndpointsCut, len(addresses)-maxAddresses)
		addresses = addresses[:maxAddresses]
	}
	return addresses, nil
}

// lookUpHost returns the IPv4 addresses of a host. It returns IPv6 addresses only when there is no
// IPv4 address, so that a dual-stack host is not counted twice.
func (s *Source) lookUpHost(ctx context.Context, host string, port uint16) ([]netip.AddrPort, error) {
	found, err := s.Resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var four, six []netip.AddrPort
	for _, address := range found {
		if address = address.Unmap(); address.Is4() {
			four = append(four, netip.AddrPortFrom(address, port))
		} else {
			six = append(six, netip.AddrPortFrom(address, port))
		}
	}
	switch {
	case len(four) > 0:
		return four, nil
	case len(six) > 0:
		return six, nil
	}
	return nil, errors.New("the answer has no address")
}

// lookUpService returns the addresses of the SRV records with the best priority; their weights are
// not used. A target that cannot be resolved fails the whole name, because half an answer would
// move its load to the other half.
func (s *Source) lookUpService(ctx context.Context, name string) ([]netip.AddrPort, error) {
	_, records, err := s.Resolver.LookupSRV(ctx, "", "", name)
	if err != nil {
		return nil, err
	}
	var addresses []netip.AddrPort
	for _, record := range records { // sorted by priority
		if record.Priority != records[0].Priority {
			break
		}
		if len(addresses) >= maxAddresses {
			s.Counters.Add(count.EndpointsCut)
			continue
		}
		some, err := s.lookUpHost(ctx, record.Target, record.Port)
		if err != nil {
			return nil, fmt.Errorf("target %s: %w", record.Target, err)
		}
		addresses = append(addresses, some...)
	}
	if len(addresses) == 0 {
		return nil, errors.New("the answer has no service record")
	}
	return addresses, nil
}
