package table

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// spellings has each service's name in the one spelling that counts. Envoy compares host names without
// case, and refuses a whole route table with two that are equal.
type spellings map[string]string

// add the name, unless it is known; returns the spelling that counts.
func (s spellings) add(name string) string {
	folded := strings.ToLower(name) // names are ASCII
	if known, ok := s[folded]; ok {
		return known
	}
	s[folded] = name
	return name
}

// respelled leaves out what is found under another spelling than the declared, or, where none is, than
// the one with most in lower case, as Kubernetes itself names services. It says what it left out.
func respelled(declared map[Place]declaration, found Found) (kept Found, left []string) {
	spelled := spellings{}
	for place := range declared {
		spelled.add(place.Service)
	}
	services := map[string]bool{}
	for place := range found {
		services[place.Service] = true
	}
	for _, service := range slices.Backward(slices.Sorted(maps.Keys(services))) { // lower case sorts last
		spelled.add(service)
	}
	kept = Found{}
	for place, addresses := range found {
		if counts := spelled.add(place.Service); counts == place.Service {
			kept[place] = addresses
		} else {
			left = append(left, fmt.Sprintf("%s in %s: %s is a service, and names must differ in more than case", place.Service, place.Cluster, counts))
		}
	}
	return kept, left
}
