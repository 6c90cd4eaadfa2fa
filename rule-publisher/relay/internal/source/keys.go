package source

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// unknownKeys of a JSON document, all at once with their paths: protojson itself stops at the first.
func unknownKeys(document []byte, message protoreflect.MessageDescriptor) []error {
	var value any
	if json.Unmarshal(document, &value) != nil {
		return nil // protojson says it better
	}
	return walk("", value, message)
}

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
