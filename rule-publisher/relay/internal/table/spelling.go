package table

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// spellings maps each service's name in lower case to the one spelling that is used. Envoy compares
// host names without case, and refuses a whole route table in which two are equal.
type spellings map[string]string

// add adds the name unless it is known, and returns the spelling that is used.
func (s spellings) add(name string) string {
	folded := strings.ToLower(name) // names are ASCII
	if known, ok := s[folded]; ok {
		return known
	}
	s[folded] = name
	return name
}

// respelled drops found places whose service is spelled differently from the declared name. When
// none is declared, the spelling with the most lower-case letters counts, because Kubernetes itself
// names services in lower case. `left` describes what was dropped.
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
