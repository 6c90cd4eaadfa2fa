package source

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// unknownKeys returns an error for each unknown key of a JSON document, with its path. protojson
// itself stops at the first one.
func unknownKeys(document []byte, message protoreflect.MessageDescriptor) []error {
	var value any
	if json.Unmarshal(document, &value) != nil {
		return nil // protojson reports malformed JSON in better words
	}
	return walk("", value, message)
}

// walk descends into the value alongside the message's fields; `path` is the prefix for error
// texts.
func walk(path string, value any, message protoreflect.MessageDescriptor) (problems []error) {
	object, ok := value.(map[string]any)
	if !ok {
		return nil
	}
	fields := message.Fields()
	for _, key := range slices.Sorted(maps.Keys(object)) {
		field := fields.ByTextName(key)
		if field == nil {
			field = fields.ByJSONName(key)
		}
		if field == nil {
			problems = append(problems, fmt.Errorf("%sunknown field %q; allowed: %s", within(path), key, keysOf(fields)))
			continue
		}
		if field.Message() == nil {
			continue
		}
		if list, ok := object[key].([]any); ok && field.IsList() {
			for i, element := range list {
				problems = append(problems, walk(fmt.Sprintf("%s%s[%d].", path, key, i), element, field.Message())...)
			}
			continue
		}
		problems = append(problems, walk(path+key+".", object[key], field.Message())...)
	}
	return problems
}

func keysOf(fields protoreflect.FieldDescriptors) string {
	names := make([]string, 0, fields.Len())
	for i := range fields.Len() {
		names = append(names, fields.Get(i).TextName())
	}
	return strings.Join(names, ", ")
}

func within(path string) string {
	if path == "" {
		return ""
	}
	return strings.TrimSuffix(path, ".") + ": "
}
