"""From a candidate to a proved task: run, hide, tell, prove. All of it happens in fresh sandboxes."""
