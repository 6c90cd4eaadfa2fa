package main

import (
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

type mistakes struct {
	Application map[string]any `yaml:"application"`
	Mistakes    []struct {
		At    []any  `yaml:"at"`
		Value any    `yaml:"value"`
		Says  string `yaml:"says"`
	} `yaml:"mistakes"`
}

func readMistakes(t *testing.T) mistakes {
	t.Helper()
	content, err := os.ReadFile("../tests/data/application_mistakes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var found mistakes
	if err := yaml.Unmarshal(content, &found); err != nil {
		t.Fatal(err)
	}
	return found
}

// put replaces or adds the value at the end of a way through mappings and lists.
func put(document any, at []any, value any) {
	for _, step := range at[:len(at)-1] {
		document = inside(document, step)
	}
	switch last := at[len(at)-1].(type) {
	case int:
		document.([]any)[last] = value
	case string:
		document.(map[string]any)[last] = value
	}
}

func inside(document, step any) any {
	if index, isIndex := step.(int); isIndex {
		return document.([]any)[index]
	}
	return document.(map[string]any)[step.(string)]
}

func problemsOf(t *testing.T, document map[string]any) string {
	t.Helper()
	content, err := yaml.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	_, problems := ParseApplication(content)
	return strings.Join(problems, "\n")
}

// TestMistakesInTheSameWords checks that the emulator names each mistake of the shared file as the
// lab's Python does.
func TestMistakesInTheSameWords(t *testing.T) {
	shared := readMistakes(t)
	if got := problemsOf(t, shared.Application); got != "" {
		t.Fatalf("the application of the file has problems: %s", got)
	}
	if len(shared.Mistakes) == 0 {
		t.Fatal("the file has no mistakes")
	}
	for i, mistake := range shared.Mistakes {
		broken := readMistakes(t).Application
		put(broken, mistake.At, mistake.Value)
		if got := problemsOf(t, broken); !strings.Contains(got, mistake.Says) {
			t.Errorf("mistake %d, %v:\n got %q\nwant %q", i, mistake.At, got, mistake.Says)
		}
	}
}
