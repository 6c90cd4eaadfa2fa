package report

import (
	"context"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/table"
)

const (
	heartbeatEvery = 2 * time.Second
	heartbeatTTL   = 10 * time.Second
	// firstHeartbeat is later than heartbeatEvery because a relay that has just started knows few
	// Envoys yet. Until then the heartbeat of its previous process still counts, as it does for a
	// while when a relay drains or never returns. It is shorter than the TTL by more than a restart
	// takes.
	firstHeartbeat = 5 * time.Second
)

// mostNamed bounds the Envoys that one heartbeat names, as contracts/proto declares.
const mostNamed = 8192

// NewHeartbeat returns the heartbeat of a relay. `placed` has, by service, the node ids of the
// Envoys that this relay sees. `ready` has, by service, its pods in the cluster; it is nil while they
// are unknown.
func NewHeartbeat(cluster, relay string, version uint64, hold time.Duration, placed map[string][]string,
	ready map[string]table.Readiness, now time.Time) *spillwayv1.Heartbeat {
	heartbeat := &spillwayv1.Heartbeat{Cluster: cluster, At: timestamppb.New(now), Relay: relay,
		TtlSeconds: uint32(heartbeatTTL / time.Second), RulesetVersion: version,
		HoldSeconds: proto.Uint32(uint32(hold / time.Second))}
	room := mostNamed
	for _, service := range slices.Sorted(maps.Keys(placed)) {
		envoys := hashes(placed[service])
		named := envoys[:min(len(envoys), room)]
		room -= len(named)
		presence := &spillwayv1.ServicePresence{Service: service, ConnectedEnvoys: uint32(len(envoys)), Envoys: named}
		if pods, known := ready[service]; known {
			presence.Pods, presence.ReadyPods = proto.Uint32(pods.Pods), proto.Uint32(pods.Ready)
		}
		heartbeat.Services = append(heartbeat.Services, presence)
	}
	return heartbeat
}

// hashes returns the sorted 32-bit hashes of node ids, which are the same in every relay. Two
// Envoys of a service with the same hash count once; among 300 the probability is 1 in 100 000.
func hashes(envoys []string) []uint32 {
	sums := make([]uint32, 0, len(envoys))
	for _, envoy := range envoys {
		h := fnv.New32a()
		h.Write([]byte(envoy))
		sums = append(sums, h.Sum32())
	}
	slices.Sort(sums)
	return slices.Compact(sums)
}

// Heartbeats publishes a heartbeat every two seconds until the context ends. A heartbeat is valid
// for seconds only, so one that cannot be sent is not kept. It uses core NATS, without
// confirmation.
func Heartbeats(ctx context.Context, conn *nats.Conn, counters *count.Counters, cluster string,
	heartbeat func(time.Time) *spillwayv1.Heartbeat) {
	subject := strings.ReplaceAll(names.NatsSubjectHeartbeats, "{cluster}", cluster)
	timer := time.NewTimer(firstHeartbeat)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			timer.Reset(heartbeatEvery)
		}
		payload, err := proto.Marshal(heartbeat(time.Now()))
		if err == nil {
			err = conn.Publish(subject, payload)
		}
		if err != nil {
			counters.Add(count.HeartbeatsNotSent)
		} else {
			counters.Add(count.HeartbeatsSent)
		}
	}
}
