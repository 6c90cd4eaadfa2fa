package table

import (
	"cmp"
	"hash/fnv"
	"slices"
	"time"

	"spillway.dev/contracts/names"
)

// keptSteps returns how many of the names.ValueHoldSteps steps of an expired ruleset's weights a
// service keeps, as spillway_contracts/hold.py defines: all for a while after expiry, none once
// `age` reaches `hold`.
func keptSteps(age, hold time.Duration, cluster, service string) uint32 {
	if age < 0 {
		return names.ValueHoldSteps
	}
	if age >= hold {
		return 0
	}
	hash := fnv.New64a()
	hash.Write([]byte(cluster + "/" + service))
	held := hold.Milliseconds()
	since := age.Milliseconds() - held/4 - held/4*int64(hash.Sum64()%1024)/1024
	if since < 0 {
		return names.ValueHoldSteps
	}
	return uint32(max(names.ValueHoldSteps-names.ValueHoldSteps*since/max(held/2, 1), 0))
}

// decayed returns the weights with `kept` of names.ValueHoldSteps parts of each. The rest goes to
// the nearest cluster.
func decayed(weights []Weighted, nearest string, kept uint32) []Weighted {
	left := uint32(names.ValueWeightTotal)
	var out []Weighted
	for _, w := range weights {
		if share := w.Weight * kept / names.ValueHoldSteps; w.Cluster != nearest && share > 0 {
			out = append(out, Weighted{w.Cluster, share})
			left -= share
		}
	}
	if left > 0 {
		out = append(out, Weighted{nearest, left})
	}
	slices.SortFunc(out, func(a, b Weighted) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return out
}
