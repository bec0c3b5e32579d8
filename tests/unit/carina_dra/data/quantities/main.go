package main
import ("bufio";"encoding/json";"fmt";"os";"k8s.io/apimachinery/pkg/api/resource")
type row struct { Text string `json:"text"`; Error bool `json:"error,omitempty"`; Canonical string `json:"canonical,omitempty"`; Value int64 `json:"value"`; Milli int64 `json:"milli"`; Format string `json:"format,omitempty"`; Plus map[string]string `json:"plus,omitempty"`; Minus map[string]string `json:"minus,omitempty"` }
func canon(q resource.Quantity) string { b, s := q.CanonicalizeBytes(nil); return string(b)+string(s) }
func main() {
  var texts []string
  sc := bufio.NewScanner(os.Stdin); for sc.Scan() { texts = append(texts, sc.Text()) }
  others := []string{"1", "1500m", "1Gi", "2e3", "3n"}
  var out []row
  for _, t := range texts {
    q, err := resource.ParseQuantity(t)
    if err != nil { out = append(out, row{Text:t, Error:true}); continue }
    if len(os.Args)>1 && q.String()!=canon(q) { fmt.Fprintln(os.Stderr, "string differs", t, q.String(), canon(q)) }
    r := row{Text:t, Canonical:canon(q), Value:q.Value(), Milli:q.MilliValue(), Format:string(q.Format), Plus: map[string]string{}, Minus: map[string]string{}}
    for _, o := range others { p := resource.MustParse(o); a := q.DeepCopy(); a.Add(p); r.Plus[o]=a.String(); b := q.DeepCopy(); b.Sub(p); r.Minus[o]=b.String() }
    out = append(out, r)
  }
  enc := json.NewEncoder(os.Stdout); enc.SetEscapeHTML(false); enc.SetIndent("", " "); enc.Encode(out)
}
