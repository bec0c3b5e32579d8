// Answers for test_quantity.py what Kubernetes makes of each text in answers.json: `go run .` in this
// folder writes them anew. To add a case, add a line with its text alone, {"text":"1.5Gi"}.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/api/resource"
)

const file = "answers.json"

// others are added to, and subtracted from, every quantity.
var others = []string{"1", "1500m", "1Gi", "2e3", "3n"}

type answer struct {
	Text      string            `json:"text"`
	Refused   bool              `json:"refused,omitempty"`
	Canonical string            `json:"canonical,omitempty"`
	Format    resource.Format   `json:"format,omitempty"`
	Value     int64             `json:"value"`
	Milli     int64             `json:"milli"`
	Plus      map[string]string `json:"plus,omitempty"`
	Minus     map[string]string `json:"minus,omitempty"`
}

func ask(text string) answer {
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return answer{Text: text, Refused: true}
	}
	// String() may repeat the text as it was read.
	number, suffix := quantity.CanonicalizeBytes(nil)
	result := answer{
		Text:      text,
		Canonical: string(number) + string(suffix),
		Format:    quantity.Format,
		Value:     quantity.Value(),
		Milli:     quantity.MilliValue(),
		Plus:      map[string]string{},
		Minus:     map[string]string{},
	}
	for _, other := range others {
		sum, difference := quantity.DeepCopy(), quantity.DeepCopy()
		sum.Add(resource.MustParse(other))
		difference.Sub(resource.MustParse(other))
		result.Plus[other] = sum.String()
		result.Minus[other] = difference.String()
	}
	return result
}

func run() error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var answers []answer
	if err := json.Unmarshal(content, &answers); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var out bytes.Buffer
	lines := json.NewEncoder(&out) // one line each
	lines.SetEscapeHTML(false)
	for i, old := range answers {
		out.WriteString(map[bool]string{true: "[", false: ","}[i == 0])
		if err := lines.Encode(ask(old.Text)); err != nil {
			return err
		}
	}
	out.WriteString("]\n")
	return os.WriteFile(file, out.Bytes(), 0o644)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
