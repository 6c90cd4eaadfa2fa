//go:build ignore

// Prints the keys of a component's configuration as JSON, with their defaults. tools/box_tables.py
// makes tables of them. It runs in the folder of the component's module, together with the file of
// this folder that names the component:
//
//	go run ../reference/keys.go ../reference/kafkapartitionexporter.go
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"reflect"
	"strings"
)

type row struct{ Name, Default, Meaning string }

// write prints the rows of a component. It fails when a key of the component's own is not declared,
// or a declared key does not exist.
func write(config any, declared []row) {
	root := reflect.ValueOf(config).Elem()
	known := map[string]bool{}
	for i, wanted := range declared {
		value, found := lookup(root, strings.Split(wanted.Name, "::"))
		if !found {
			log.Fatalf("%s: no key of %s", wanted.Name, root.Type())
		}
		declared[i].Default = shown(value)
		known[wanted.Name] = true
	}
	if missing := undeclared(root, "", known); len(missing) > 0 {
		log.Fatalf("%s: not declared in keys.go of %s", strings.Join(missing, ", "), root.Type())
	}
	if err := json.NewEncoder(os.Stdout).Encode(declared); err != nil {
		log.Fatal(err)
	}
}

// lookup returns the value of a key, also within structures that are squashed. When several of them
// have the key, it sets all of them, and the first that is not zero is returned.
func lookup(value reflect.Value, path []string) (found reflect.Value, ok bool) {
	if len(path) == 0 {
		return value, true
	}
	if value.Kind() != reflect.Struct {
		return value, false
	}
	for i := range value.NumField() {
		name, squashed := key(value.Type().Field(i))
		rest := path
		if !squashed {
			if name != path[0] {
				continue
			}
			rest = path[1:]
		}
		if inner, in := lookup(value.Field(i), rest); in && (!ok || found.IsZero()) {
			found, ok = inner, true
		}
	}
	return found, ok
}

// undeclared returns the keys of the component's own types that are not known.
func undeclared(value reflect.Value, prefix string, known map[string]bool) []string {
	var missing []string
	for i := range value.NumField() {
		field := value.Type().Field(i)
		name, squashed := key(field)
		switch {
		case known[prefix+name], squashed, name == "":
		case field.Type.Kind() == reflect.Struct && field.Type.PkgPath() == value.Type().PkgPath():
			missing = append(missing, undeclared(value.Field(i), prefix+name+"::", known)...)
		default:
			missing = append(missing, prefix+name)
		}
	}
	return missing
}

// key returns a field's key, and whether the keys of its structure are those of the parent.
func key(field reflect.StructField) (name string, squashed bool) {
	name, options, _ := strings.Cut(field.Tag.Get("mapstructure"), ",")
	return name, strings.Contains(options, "squash")
}

// shown returns a default as it would be written in YAML. That of a structure or list is empty.
func shown(value reflect.Value) string {
	switch value.Kind() {
	case reflect.Struct, reflect.Slice, reflect.Map, reflect.Pointer:
		return ""
	default:
		text := fmt.Sprint(value.Interface())
		if strings.HasSuffix(text, "m0s") {
			return strings.TrimSuffix(text, "0s")
		}
		return text
	}
}
