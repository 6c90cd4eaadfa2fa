package table

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"spillway.dev/contracts/names"
)

// localFirst sends everything to the nearest tier. Envoy fails over from there.
func localFirst(tiers []Tier) []Weighted {
	return []Weighted{{Cluster: tiers[0].Cluster, Weight: names.ValueWeightTotal}}
}

// way applies a rule to the tiers that are not denied. An empty rule means local-first. `kept` is
// the number of steps of the weights that are kept. `adapted` says which part of the rule could not
// be followed.
func way(rule []Weighted, tiers []Tier, denied []string, kept uint32) (taken Way, adapted string) {
	allowed, without := Except(tiers, denied)
	if len(allowed) == 0 {
		return Way{Without: without}, closed(without)
	}
	weights, adapted := follow(rule, allowed)
	if kept < names.ValueHoldSteps {
		weights = decayed(weights, allowed[0].Cluster, kept)
	}
	return Way{weights, without}, adapted
}

// follow returns a rule's weights for the clusters that have endpoints. Shares of clusters without
// endpoints go to the others in proportion, and `adapted` then says so. An empty rule yields
// local-first.
func follow(rule []Weighted, tiers []Tier) (weights []Weighted, adapted string) {
	if len(rule) == 0 {
		return localFirst(tiers), ""
	}
	var missing []string
	for _, w := range rule {
		has := slices.ContainsFunc(tiers, func(t Tier) bool { return t.Cluster == w.Cluster })
		switch {
		case w.Weight == 0:
		case has:
			weights = append(weights, w)
		default:
			missing = append(missing, w.Cluster)
		}
	}
	if len(missing) == 0 {
		return weights, ""
	}
	adapted = fmt.Sprintf("no reachable endpoints in %s, or denied", strings.Join(missing, ", "))
	if len(weights) == 0 {
		return localFirst(tiers), adapted
	}
	return normalise(weights), adapted
}

// normalise scales positive weights so that they sum to exactly names.ValueWeightTotal, by the
// largest remainder method.
func normalise(weights []Weighted) []Weighted {
	var sum uint64
	for _, w := range weights {
		sum += uint64(w.Weight)
	}
	out := slices.Clone(weights)
	order := make([]int, len(out))
	remainders := make([]uint64, len(out))
	left := uint32(names.ValueWeightTotal)
	for i, w := range weights {
		scaled := uint64(w.Weight) * names.ValueWeightTotal
		out[i].Weight = uint32(scaled / sum)
		remainders[i], order[i] = scaled%sum, i
		left -= out[i].Weight
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(remainders[b], remainders[a]) })
	for _, i := range order[:left] {
		out[i].Weight++
	}
	return out
}
