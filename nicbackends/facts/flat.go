package facts

import (
	"reflect"
	"strings"
)

// Flat is what results depend on, by name: "kernel", "nic.mlx5_0.firmware". What could not be read is left out, and so is
// what differs between any two runs, such as the time.
func (f Facts) Flat() map[string]string {
	out := f.flat()
	for k, v := range out {
		if !Value(v).Known() {
			delete(out, k)
		}
	}
	return out
}

func (f Facts) flat() map[string]string {
	out := map[string]string{}
	flatten(out, "", reflect.ValueOf(f))
	for _, n := range f.NICs {
		name := n.Device
		if name == "" {
			name = n.Name
		}
		flatten(out, "nic."+name+".", reflect.ValueOf(n))
	}
	return out
}

func flatten(out map[string]string, prefix string, v reflect.Value) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		value, ok := v.Field(i).Interface().(Value)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !ok || value == "" || field.Tag.Get("flat") == "-" || name == "-" {
			continue
		}
		out[prefix+name] = string(value)
	}
}
