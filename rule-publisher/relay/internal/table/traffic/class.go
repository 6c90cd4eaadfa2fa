// Package traffic is the traffic classes that Envoy can match: their path templates, and the order
// in which the most specific comes first. It knows no clusters, rules, denials or weights.
package traffic

import (
	"fmt"
	"regexp"

	"spillway.dev/contracts/spillwayv1"
)

var (
	serviceName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
	methodName  = regexp.MustCompile(`^[A-Z]{1,32}$`)
)

// Class is a traffic class whose template and method Envoy can match.
type Class struct {
	Service  string
	Method   string
	Template Template
}

// ID returns the class id of the glossary: `service METHOD /path/{template}`.
func (c Class) ID() string {
	return c.Service + " " + c.Method + " " + c.Template.text
}

// Form returns the same text for classes that match the same requests. The names of variables do
// not matter.
func (c Class) Form() string {
	form := c.Method + " "
	for _, s := range c.Template.segments {
		if form += "/" + s.prefix; s.variable != "" {
			form += "{}" + s.suffix
		}
	}
	return form
}

// IsServiceName reports whether the text can be the name of a service.
func IsServiceName(text string) bool { return serviceName.MatchString(text) }

// ParseClass reads a traffic class of the contract. The error names the class and what is wrong
// with it.
func ParseClass(class *spillwayv1.TrafficClass) (Class, error) {
	if !IsServiceName(class.GetService()) {
		return Class{}, fmt.Errorf("traffic class service %q: must be letters, digits and inner '._-'", class.GetService())
	}
	if !methodName.MatchString(class.GetMethod()) {
		return Class{}, fmt.Errorf("traffic class %s: method %.40q must be 1 to 32 upper case letters", class.GetService(), class.GetMethod())
	}
	template, err := ParseTemplate(class.GetPathTemplate())
	if err == nil {
		_, err = template.Pattern()
	}
	if err != nil {
		return Class{}, fmt.Errorf("traffic class %s %s: %w", class.GetService(), class.GetMethod(), err)
	}
	return Class{Service: class.GetService(), Method: class.GetMethod(), Template: template}, nil
}
