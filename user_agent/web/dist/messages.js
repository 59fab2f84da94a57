import{a}from"./chunk-FR26M474.js";export{a as messages};
