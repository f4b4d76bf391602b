package analysis

import "context"

// Run reads the inputs once and returns the document. On a cut or corrupt capture it returns what the good part says,
// with the verdict incomplete; an error means that there is no document.
func Run(ctx context.Context, inputs []Input, o Options) (*Document, error) {
	if _, err := o.resolved(); err != nil {
		return nil, err
	}
	return &Document{Schema: Schema}, ctx.Err()
}
