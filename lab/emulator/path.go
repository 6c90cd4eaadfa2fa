package main

import (
	"strconv"
	"strings"
)

const (
	pathHeader   = "X-Lab-Path"
	reasonHeader = "X-Lab-Reason"
	// maxPathBytes is well below 60 KiB, above which Envoy refuses response headers.
	maxPathBytes = 8192
)

// joinPath concatenates a hop and its children's paths: "service@cluster,...". Hops beyond
// maxPathBytes are dropped and counted in a last element "+N", which includes the children's own
// counts.
func joinPath(own string, children []string) string {
	hops, omitted := []string{own}, 0
	for _, child := range children {
		if child == "" {
			continue
		}
		for hop := range strings.SplitSeq(child, ",") {
			if count, found := strings.CutPrefix(hop, "+"); found {
				n, _ := strconv.Atoi(count)
				omitted += n
			} else {
				hops = append(hops, hop)
			}
		}
	}
	length := 0
	for i, hop := range hops {
		length += len(hop) + 1
		if i > 0 && length > maxPathBytes {
			omitted += len(hops) - i
			hops = hops[:i]
			break
		}
	}
	if omitted > 0 {
		hops = append(hops, "+"+strconv.Itoa(omitted))
	}
	return strings.Join(hops, ",")
}
