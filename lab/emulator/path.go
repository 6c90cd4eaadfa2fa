package main

import (
	"strconv"
	"strings"
)

const (
	pathHeader   = "X-Lab-Path"
	reasonHeader = "X-Lab-Reason"
	// Envoy refuses response headers above 60 KiB in all; this is well below.
	maxPathBytes = 8192
)

// joinPath concatenates a hop and its children's paths: "service@cluster,...". What exceeds the
// bound is dropped and counted by a last element "+N", children's own counts included.
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
