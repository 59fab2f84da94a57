"""The issuer: knows who asks for a token, and never which token, task answer or batch is whose."""
